"""Cluster: one Kubernetes cluster, held together by an infrastructure object and a control plane object.

`topology` is kept as it was written and understood by nobody here: admission refuses it, in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from remuda.capi import names
from remuda.capi.types.shared import (
    ConditionGates,
    Conditions,
    Count,
    FailureDomainName,
    Generation,
    Int32,
    OldConditions,
    OldFailureMessage,
    OldFailureReason,
    Reference,
    VersionCount,
)
from remuda.kube.objects import Field, Kind, Object, Part
from remuda.kube.schema import Rule

CLUSTER_PHASES = ("Pending", "Provisioning", "Provisioned", "Deleting", "Failed", "Unknown")

Port = Annotated[Int32, Field(minimum=1, maximum=65535)]


class NetworkRanges(Part):
    """Ranges of addresses."""

    cidr_blocks: Annotated[
        Sequence[str],
        Field(
            'As in "10.1.0.0/16".',
            required=True,
            list_type="atomic",
            min_items=1,
            max_items=100,
            items=Field(min_length=1, max_length=43),
        ),
    ] = ()


class ClusterNetwork(Part):
    """The network inside the cluster."""

    api_server_port: Annotated[Port | None, Field("The port API servers listen on; 6443 if unset.")] = None
    services: Annotated[NetworkRanges | None, Field("Where Services get their addresses from.")] = None
    pods: Annotated[NetworkRanges | None, Field("Where Pods get their addresses from.")] = None
    service_domain: Annotated[str, Field("The DNS domain of Services.", min_length=1, max_length=253)] = ""


class Endpoint(Part):
    """Address of the cluster's API."""

    host: Annotated[str, Field("A name or an address.", min_length=1, max_length=512)] = ""
    port: Annotated[Port, Field("A port.")] = 0

    @property
    def valid(self) -> bool:
        return bool(self.host) and self.port > 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


NO_TOPOLOGY = (
    "ClusterClass is not supported: describe the cluster by spec.infrastructureRef and spec.controlPlaneRef, and its "
    "workers by MachineDeployments"
)


def _forbidden(rule: str, message: str, field: str = "") -> Rule:
    return Rule(rule=rule, message=message, reason="FieldValueForbidden", field_path=field)


_SPEC_RULES = (
    _forbidden("!has(self.topology)", NO_TOPOLOGY, ".topology"),
    _forbidden(
        "has(self.controlPlaneRef) || has(self.infrastructureRef) || has(self.topology)",
        "one of spec.controlPlaneRef and spec.infrastructureRef must be set",
    ),
    _forbidden("has(self.controlPlaneRef) || !has(oldSelf.controlPlaneRef)", "spec.controlPlaneRef cannot be removed"),
    _forbidden(
        "has(self.infrastructureRef) || !has(oldSelf.infrastructureRef)", "spec.infrastructureRef cannot be removed"
    ),
)


class ClusterSpec(Part):
    """The cluster as it shall be."""

    paused: Annotated[bool, Field("While true, nothing that belongs to the cluster is touched.")] = False
    cluster_network: Annotated[ClusterNetwork | None, Field(min_properties=1)] = None
    control_plane_endpoint: Annotated[
        Endpoint,
        Field("Where the API is reached; filled in from the infrastructure or the control plane.", min_properties=1),
    ] = Endpoint()
    control_plane_ref: Annotated[Reference | None, Field("The control plane provider's object.")] = None
    infrastructure_ref: Annotated[Reference | None, Field("The infrastructure provider's object.")] = None
    topology: Annotated[
        Mapping[str, object] | None,
        Field("A cluster described by a ClusterClass: not supported, and refused.", preserve_unknown=True),
    ] = None
    availability_gates: Annotated[
        ConditionGates, Field("Conditions that must hold besides the usual ones for Available.")
    ] = ()


class FailureDomain(Part):
    """A place servers can be put that fails on its own."""

    name: Annotated[FailureDomainName, Field("Its name.", required=True)] = ""
    control_plane: Annotated[bool, Field("Whether control plane Machines may be put there.")] = False
    attributes: Annotated[Mapping[str, str], Field("What the provider says of it.")] = {}


class ClusterInitialization(Part):
    """What has happened once, and is never taken back."""

    infrastructure_provisioned: Annotated[bool, Field("The shared infrastructure exists.")] = False
    control_plane_initialized: Annotated[bool, Field("The API has answered once.")] = False


class ReplicaCounts(Part):
    """Machines of one part of the cluster, counted."""

    desired_replicas: Annotated[Count | None, Field("How many are wanted.")] = None
    replicas: Annotated[Count | None, Field("How many there are.")] = None
    up_to_date_replicas: Annotated[Count | None, Field("How many are as they shall be.")] = None
    ready_replicas: Annotated[Count | None, Field("How many are ready.")] = None
    available_replicas: Annotated[Count | None, Field("How many are available.")] = None
    versions: Annotated[
        Sequence[VersionCount], Field("How many run which version.", list_type="atomic", max_items=32)
    ] = ()


class OldClusterStatus(Part):
    """What the v1beta1 API says in its status."""

    conditions: OldConditions = ()
    failure_reason: OldFailureReason = ""
    failure_message: OldFailureMessage = ""


class DeprecatedClusterStatus(Part):
    """Kept for readers of older APIs."""

    v1beta1: Annotated[OldClusterStatus | None, Field()] = None


class ClusterStatus(Part):
    """The cluster as it is."""

    conditions: Conditions = ()
    initialization: Annotated[ClusterInitialization, Field(min_properties=1)] = ClusterInitialization()
    control_plane: Annotated[ReplicaCounts | None, Field()] = None
    workers: Annotated[ReplicaCounts | None, Field()] = None
    failure_domains: Annotated[
        Sequence[FailureDomain],
        Field("Where servers can be put.", list_type="map", list_map_keys=("name",), min_items=1, max_items=100),
    ] = ()
    phase: Annotated[str, Field("The conditions in one word, for people.", enum=CLUSTER_PHASES)] = ""
    observed_generation: Generation = 0
    deprecated: Annotated[DeprecatedClusterStatus | None, Field()] = None


class Cluster(Object):
    """One Kubernetes cluster and everything it needs."""

    spec: Annotated[ClusterSpec, Field(required=True, min_properties=1, rules=_SPEC_RULES)] = ClusterSpec()
    status: Annotated[ClusterStatus, Field(min_properties=1)] = ClusterStatus()


CLUSTER = Kind(names.API_VERSION, "Cluster", "clusters", Cluster)
