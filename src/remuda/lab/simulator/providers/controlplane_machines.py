"""Objects that a control plane creates, and the assessment of its Machines. Pure, except for the random
part of a name.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import msgspec
import yaml

from remuda.capi import contract, names
from remuda.capi.contract import ProviderObject
from remuda.capi.types import Cluster, Machine, Reference, TemplateMetadata
from remuda.capi.types.machine import MachineDeletion
from remuda.kube import clock, conditions
from remuda.kube.names import generate_name
from remuda.kube.objects import Condition, OwnerReference
from remuda.lab.simulator.kinds import Family
from remuda.lab.simulator.providers import common
from remuda.lab.simulator.providers.rollout import ControlPlaneMachine
from remuda.lab.simulator.types import OldSimulatedControlPlane, Script, SimulatedControlPlane

Json = dict[str, Any]

HOOK = f"{names.PRE_TERMINATE_HOOK}/simulated-etcd"  # holds a Machine until its member has left etcd
UP_TO_DATE = "UpToDate"


class DesiredControlPlane(NamedTuple):
    """Desired state of a control plane, under either contract."""

    replicas: int
    version: str
    template: Reference
    metadata: TemplateMetadata
    deletion: MachineDeletion
    rollout_after: str | None
    bootstrap: Script

    @classmethod
    def of(cls, obj: SimulatedControlPlane | OldSimulatedControlPlane) -> DesiredControlPlane:
        spec = obj.spec
        replicas = 1 if spec.replicas is None else spec.replicas
        if isinstance(obj, SimulatedControlPlane):
            template = obj.spec.machine_template
            inner = template.spec
            reference, deletion, after = inner.infrastructure_ref, inner.deletion, obj.spec.rollout.after
            return cls(replicas, spec.version, reference, template.metadata, deletion, after, spec.bootstrap)
        old = obj.spec.machine_template
        reference = Reference(
            api_group=old.infrastructure_ref.api_version.rpartition("/")[0],
            kind=old.infrastructure_ref.kind,
            name=old.infrastructure_ref.name,
        )
        after = obj.spec.rollout_after
        return cls(replicas, spec.version, reference, old.metadata, MachineDeletion(), after, spec.bootstrap)


def labels(control_plane: ProviderObject, cluster: Cluster, wanted: DesiredControlPlane) -> dict[str, str]:
    return {
        **wanted.metadata.labels,
        names.CLUSTER_NAME: cluster.metadata.name,
        names.CONTROL_PLANE: "",
        names.CONTROL_PLANE_NAME: names.label_value(control_plane.key.name),
    }


def machine(
    control_plane: ProviderObject, family: Family, cluster: Cluster, wanted: DesiredControlPlane, failure_domain: str
) -> Json:
    """Return a new Machine. The objects that it refers to get its name."""
    name = generate_name(f"{control_plane.key.name}-")
    infrastructure = {"apiGroup": wanted.template.api_group, "kind": contract.base_kind(wanted.template.kind)}
    spec: Json = {
        "clusterName": cluster.metadata.name,
        "version": wanted.version,
        "bootstrap": {"configRef": {"apiGroup": family.group, "kind": family.bootstrap.name, "name": name}},
        "infrastructureRef": {**infrastructure, "name": name},
    }
    if failure_domain:
        spec["failureDomain"] = failure_domain
    if deletion := msgspec.to_builtins(wanted.deletion):
        spec["deletion"] = deletion
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Machine",
        "metadata": {
            "name": name,
            "namespace": control_plane.key.namespace,
            "labels": labels(control_plane, cluster, wanted),
            "annotations": {**wanted.metadata.annotations, HOOK: ""},
            "finalizers": [names.MACHINE_FINALIZER],
            "ownerReferences": [msgspec.to_builtins(common.owner_reference(control_plane))],
        },
        "spec": spec,
    }


def owner(machine: Machine) -> OwnerReference:
    """Return the Machine as owner of the objects that it refers to."""
    return OwnerReference(
        api_version=names.API_VERSION,
        kind="Machine",
        name=machine.metadata.name,
        uid=machine.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def bootstrap(family: Family, cluster: Cluster, wanted: DesiredControlPlane, machine: Machine) -> Json:
    return {
        "apiVersion": family.bootstrap.api_version,
        "kind": family.bootstrap.name,
        "metadata": {
            "name": machine.metadata.name,
            "labels": dict(machine.metadata.labels),
            "annotations": dict(wanted.metadata.annotations),
            "ownerReferences": [msgspec.to_builtins(owner(machine))],
        },
        "spec": {"script": msgspec.to_builtins(wanted.bootstrap)},
    }


def kubeconfig_secret(control_plane: ProviderObject, cluster: Cluster, config: Json) -> Json:
    text = yaml.dump(config, Dumper=yaml.CSafeDumper, sort_keys=False).encode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": names.kubeconfig_secret(cluster.metadata.name),
            "labels": {names.CLUSTER_NAME: cluster.metadata.name},
            "ownerReferences": [msgspec.to_builtins(common.owner_reference(control_plane))],
        },
        "type": names.SECRET_TYPE,
        "data": {names.KUBECONFIG_KEY: base64.b64encode(text).decode()},
    }


# -- assessment of Machines


def member(
    machine: Machine, infrastructure: ProviderObject | None, wanted: DesiredControlPlane, *, settled: bool
) -> ControlPlaneMachine:
    return ControlPlaneMachine(
        name=machine.metadata.name,
        created=machine.metadata.creation_timestamp or "",
        up_to_date=_up_to_date(machine, infrastructure, wanted),
        settled=settled,
        deleting=machine.metadata.deleting,
        unhealthy=_given_up(machine),
        failure_domain=machine.spec.failure_domain,
    )


def _up_to_date(machine: Machine, infrastructure: ProviderObject | None, wanted: DesiredControlPlane) -> bool:
    if machine.spec.version != wanted.version:
        return False
    made_from = infrastructure.metadata.annotations.get(names.CLONED_FROM_NAME) if infrastructure is not None else None
    if made_from is not None and made_from != wanted.template.name:
        return False
    created, after = machine.metadata.creation_timestamp, wanted.rollout_after
    return not (created and after and clock.parse(created) < clock.parse(after) <= clock.time())


def _given_up(machine: Machine) -> bool:
    failed = conditions.is_false(machine.status.conditions, "HealthCheckSucceeded")
    return failed and conditions.is_false(machine.status.conditions, "OwnerRemediated")


def up_to_date_condition(up_to_date: bool) -> Condition:
    if up_to_date:
        return conditions.condition(UP_TO_DATE, True, "UpToDate")
    return conditions.condition(UP_TO_DATE, False, "NotUpToDate", "the control plane wants it to be replaced")
