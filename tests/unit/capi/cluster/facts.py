"""Clusters, Machines and providers' objects as tests of pure functions need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.capi import names
from remuda.capi.cluster.scope import ProviderLookup
from remuda.capi.contract import ProviderObject
from remuda.capi.types import (
    Cluster,
    ClusterSpec,
    ClusterStatus,
    Machine,
    MachineDeployment,
    MachineDeploymentSpec,
    MachineDeploymentStatus,
    MachineSet,
    MachineSetSpec,
    MachineSetStatus,
    MachineStatus,
    NodeReference,
    Reference,
)
from remuda.kube import clock
from remuda.kube.client import Target
from remuda.kube.conditions import condition
from remuda.kube.objects import Condition, ObjectMeta, OwnerReference

NOW = clock.parse("2026-06-01T12:00:00Z")
LONG_AGO = "2026-01-01T00:00:00Z"
JUST_NOW = "2026-06-01T11:59:56Z"

INFRASTRUCTURE = Reference(api_group="dev.example.com", kind="DevCluster", name="c")
CONTROL_PLANE = Reference(api_group="dev.example.com", kind="DevControlPlane", name="c")
CONTROLLER = OwnerReference(kind="MachineSet", name="owner", uid="1", controller=True)


def cluster(*conditions: Condition, deleting: bool = False, **spec: Any) -> Cluster:
    metadata = ObjectMeta(
        name="c", namespace="ns", uid="u", generation=4, deletion_timestamp=JUST_NOW if deleting else None
    )
    return Cluster(metadata=metadata, spec=ClusterSpec(**spec), status=ClusterStatus(conditions=conditions))


def machine(
    name: str,
    *conditions: Condition,
    control_plane: bool = False,
    owned: bool = False,
    node: str = "",
    created: str = LONG_AGO,
    deleting: bool = False,
) -> Machine:
    return Machine(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            labels={names.CONTROL_PLANE: ""} if control_plane else {},
            owner_references=[CONTROLLER] if owned else [],
            creation_timestamp=created,
            deletion_timestamp=JUST_NOW if deleting else None,
        ),
        status=MachineStatus(conditions=conditions, node_ref=NodeReference(name=node) if node else None),
    )


def deployment(name: str, *conditions: Condition, replicas: int | None = None, **status: Any) -> MachineDeployment:
    return MachineDeployment(
        metadata=ObjectMeta(name=name, namespace="ns"),
        spec=MachineDeploymentSpec(replicas=replicas),
        status=MachineDeploymentStatus(conditions=conditions, **status),
    )


def machine_set(
    name: str, *conditions: Condition, replicas: int | None = None, owned: bool = False, **status: Any
) -> MachineSet:
    return MachineSet(
        metadata=ObjectMeta(name=name, namespace="ns", owner_references=[CONTROLLER] if owned else []),
        spec=MachineSetSpec(replicas=replicas),
        status=MachineSetStatus(conditions=conditions, **status),
    )


def found(ref: Reference, contract: str = "v1beta2", **parts: Any) -> ProviderLookup:
    """The object a reference points to."""
    raw = {"kind": ref.kind, "metadata": {"name": ref.name, "namespace": "ns", "uid": "p"}, **parts}
    target = Target(f"{ref.api_group}/v1", ref.kind.lower() + "s")
    return ProviderLookup(ref, ProviderObject(msgspec.json.encode(raw), target, contract))


def good(*types: str) -> Sequence[Condition]:
    return [condition(type, True, type) for type in types]
