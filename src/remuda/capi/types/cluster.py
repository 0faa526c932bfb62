"""Cluster: one Kubernetes cluster, held together by an infrastructure object and a control plane object.

`topology` is stored as written, but not supported: admission rejects it with a message.
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
    """Address ranges in CIDR notation."""

    cidr_blocks: Annotated[
        Sequence[str],
        Field(
            'For example "10.1.0.0/16".',
            required=True,
            list_type="atomic",
            min_items=1,
            max_items=100,
            items=Field(min_length=1, max_length=43),
        ),
    ] = ()


class ClusterNetwork(Part):
    """Network settings of the cluster."""

    api_server_port: Annotated[Port | None, Field("Port of the API servers; 6443 if unset.")] = None
    services: Annotated[NetworkRanges | None, Field("Address ranges of Services.")] = None
    pods: Annotated[NetworkRanges | None, Field("Address ranges of Pods.")] = None
    service_domain: Annotated[str, Field("DNS domain of Services.", min_length=1, max_length=253)] = ""


class Endpoint(Part):
    """Address of the cluster's API server."""

    host: Annotated[str, Field("Host name or IP address.", min_length=1, max_length=512)] = ""
    port: Annotated[Port, Field("Port number.")] = 0

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
    """Desired state of the cluster."""

    paused: Annotated[bool, Field("While true, controllers do not change any object of the cluster.")] = False
    cluster_network: Annotated[ClusterNetwork | None, Field(min_properties=1)] = None
    control_plane_endpoint: Annotated[
        Endpoint,
        Field("Endpoint of the API server; set from the infrastructure or the control plane.", min_properties=1),
    ] = Endpoint()
    control_plane_ref: Annotated[Reference | None, Field("Object of the control plane provider.")] = None
    infrastructure_ref: Annotated[Reference | None, Field("Object of the infrastructure provider.")] = None
    topology: Annotated[
        Mapping[str, object] | None,
        Field("Cluster topology (ClusterClass): not supported, and rejected.", preserve_unknown=True),
    ] = None
    availability_gates: Annotated[ConditionGates, Field("Additional conditions that are required for Available.")] = ()


class FailureDomain(Part):
    """Failure domain of the infrastructure, in which servers can be placed."""

    name: Annotated[FailureDomainName, Field("Name.", required=True)] = ""
    control_plane: Annotated[bool, Field("Whether control plane Machines may be placed there.")] = False
    attributes: Annotated[Mapping[str, str], Field("Attributes that the provider sets.")] = {}


class ClusterInitialization(Part):
    """Initialization steps that have completed. They are never reset."""

    infrastructure_provisioned: Annotated[bool, Field("Whether the shared infrastructure exists.")] = False
    control_plane_initialized: Annotated[bool, Field("Whether the API server has answered at least once.")] = False


class ReplicaCounts(Part):
    """Replica counts of one part of the cluster."""

    desired_replicas: Annotated[Count | None, Field("Desired number of Machines.")] = None
    replicas: Annotated[Count | None, Field("Number of Machines.")] = None
    up_to_date_replicas: Annotated[Count | None, Field("Number of up-to-date Machines.")] = None
    ready_replicas: Annotated[Count | None, Field("Number of ready Machines.")] = None
    available_replicas: Annotated[Count | None, Field("Number of available Machines.")] = None
    versions: Annotated[
        Sequence[VersionCount], Field("Number of Machines per Kubernetes version.", list_type="atomic", max_items=32)
    ] = ()


class OldClusterStatus(Part):
    """Status fields of the v1beta1 API."""

    conditions: OldConditions = ()
    failure_reason: OldFailureReason = ""
    failure_message: OldFailureMessage = ""


class DeprecatedClusterStatus(Part):
    """Deprecated status fields, for clients of older API versions."""

    v1beta1: Annotated[OldClusterStatus | None, Field()] = None


class ClusterStatus(Part):
    """Observed state of the cluster."""

    conditions: Conditions = ()
    initialization: Annotated[ClusterInitialization, Field(min_properties=1)] = ClusterInitialization()
    control_plane: Annotated[ReplicaCounts | None, Field()] = None
    workers: Annotated[ReplicaCounts | None, Field()] = None
    failure_domains: Annotated[
        Sequence[FailureDomain],
        Field(
            "Failure domains in which servers can be placed.",
            list_type="map",
            list_map_keys=("name",),
            min_items=1,
            max_items=100,
        ),
    ] = ()
    phase: Annotated[str, Field("Summary of the conditions in one word.", enum=CLUSTER_PHASES)] = ""
    observed_generation: Generation = 0
    deprecated: Annotated[DeprecatedClusterStatus | None, Field()] = None


class Cluster(Object):
    """One Kubernetes cluster and everything it needs."""

    spec: Annotated[ClusterSpec, Field(required=True, min_properties=1, rules=_SPEC_RULES)] = ClusterSpec()
    status: Annotated[ClusterStatus, Field(min_properties=1)] = ClusterStatus()


CLUSTER = Kind(names.API_VERSION, "Cluster", "clusters", Cluster)
