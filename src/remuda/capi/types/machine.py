"""Machine: one server that is or shall become one Node. Also the template every kind that makes Machines holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from remuda.capi import names
from remuda.capi.types.shared import (
    ClusterName,
    ConditionGates,
    Conditions,
    FailureDomainName,
    Generation,
    MachineTaint,
    ObjectName,
    OldConditions,
    OldFailureMessage,
    OldFailureReason,
    Reference,
    Seconds,
    TemplateMetadata,
    Time,
    Version,
)
from remuda.kube.objects import Field, Kind, Object, Part

MACHINE_PHASES = (
    "Pending",
    "Provisioning",
    "Provisioned",
    "Running",
    "Updating",
    "Deleting",
    "Deleted",
    "Failed",
    "Unknown",
)
ADDRESS_TYPES = ("Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS")


class Bootstrap(Part):
    """Source of the bootstrap data: an object of a bootstrap provider, or an existing Secret."""

    config_ref: Annotated[Reference | None, Field("Object of the bootstrap provider.")] = None
    data_secret_name: Annotated[
        str | None, Field("Secret with the bootstrap data; set automatically if configRef is set.", max_length=253)
    ] = None


class MachineDeletion(Part):
    """Timeouts of the stages of a deletion. 0 means no limit."""

    node_drain_timeout_seconds: Annotated[Seconds | None, Field("Timeout for draining the Node.")] = None
    node_volume_detach_timeout_seconds: Annotated[
        Seconds | None, Field("Timeout for detaching volumes from the Node.")
    ] = None
    node_deletion_timeout_seconds: Annotated[Seconds | None, Field("Timeout for deleting the Node; 10 if unset.")] = (
        None
    )


class MachineSpec(Part):
    """Desired state of the server."""

    cluster_name: ClusterName = ""
    bootstrap: Annotated[Bootstrap, Field(required=True)] = Bootstrap()
    infrastructure_ref: Annotated[
        Reference, Field("Object of the infrastructure provider that represents the server.", required=True)
    ] = Reference()
    version: Annotated[Version, Field('Kubernetes version, for example "v1.35.2".')] = ""
    provider_id: Annotated[
        str,
        Field(
            "Provider ID of the server, equal to that of its Node; set from the infrastructure object.",
            min_length=1,
            max_length=512,
        ),
    ] = ""
    failure_domain: Annotated[FailureDomainName, Field("Failure domain in which the server is to be placed.")] = ""
    min_ready_seconds: Annotated[
        Seconds, Field("Seconds for which the Machine must be ready before it is available.")
    ] = 0
    readiness_gates: Annotated[ConditionGates, Field("Additional conditions that are required for Ready.")] = ()
    deletion: Annotated[MachineDeletion, Field(min_properties=1)] = MachineDeletion()
    taints: Annotated[
        Sequence[MachineTaint],
        Field("Taints of the Node.", list_type="map", list_map_keys=("key", "effect"), min_items=1, max_items=64),
    ] = ()


class MachineTemplate(Part):
    """Template of new Machines."""

    metadata: Annotated[TemplateMetadata, Field(min_properties=1)] = TemplateMetadata()
    spec: Annotated[MachineSpec, Field(required=True)] = MachineSpec()


class NodeReference(Part):
    """Reference to the Node of this Machine."""

    name: Annotated[ObjectName, Field("Name.", required=True)] = ""


class NodeSwap(Part):
    """Swap of the node."""

    capacity: Annotated[int | None, Field("Capacity in bytes.", format="int64")] = None


class NodeInfo(Part):
    """System information that the Node reports."""

    machine_id: Annotated[str, Field("ID from /etc/machine-id.", required=True)] = ""
    system_uuid: Annotated[str, Field("UUID of the hardware.", required=True)] = msgspec.field(
        default="", name="systemUUID"
    )
    boot_id: Annotated[str, Field("ID that changes with every boot.", required=True)] = ""
    kernel_version: Annotated[str, Field("Kernel version.", required=True)] = ""
    os_image: Annotated[str, Field("Name and version of the operating system.", required=True)] = ""
    container_runtime_version: Annotated[str, Field("Name and version of the container runtime.", required=True)] = ""
    kubelet_version: Annotated[str, Field("kubelet version.", required=True)] = ""
    kube_proxy_version: Annotated[str, Field("kube-proxy version.", required=True)] = ""
    operating_system: Annotated[str, Field('Operating system, for example "linux".', required=True)] = ""
    architecture: Annotated[str, Field('Architecture, for example "amd64".', required=True)] = ""
    swap: Annotated[NodeSwap | None, Field()] = None


class MachineAddress(Part):
    """One address of the server."""

    type: Annotated[str, Field("Type of the address.", required=True, enum=ADDRESS_TYPES)] = ""
    address: Annotated[str, Field("IP address or name.", required=True, min_length=1, max_length=256)] = ""


class MachineInitialization(Part):
    """Initialization steps that have completed. They are never reset."""

    infrastructure_provisioned: Annotated[bool, Field("Whether the server exists.")] = False
    bootstrap_data_secret_created: Annotated[bool, Field("Whether the bootstrap data exists.")] = False


class MachineDeletionStatus(Part):
    """Start times of the stages of a deletion."""

    node_drain_start_time: Annotated[Time | None, Field("Start time of the drain.")] = None
    wait_for_node_volume_detach_start_time: Annotated[Time | None, Field("Start time of the wait for volumes.")] = None
    wait_for_pre_drain_hook_start_time: Annotated[Time | None, Field("Start time of the wait for pre-drain hooks.")] = (
        None
    )
    wait_for_pre_terminate_hook_start_time: Annotated[
        Time | None, Field("Start time of the wait for pre-terminate hooks.")
    ] = None


class OldMachineStatus(Part):
    """Status fields of the v1beta1 API."""

    conditions: OldConditions = ()
    failure_reason: OldFailureReason = ""
    failure_message: OldFailureMessage = ""


class DeprecatedMachineStatus(Part):
    """Deprecated status fields, for clients of older API versions."""

    v1beta1: Annotated[OldMachineStatus | None, Field()] = None


class MachineStatus(Part):
    """Observed state of the server."""

    conditions: Conditions = ()
    initialization: Annotated[MachineInitialization, Field(min_properties=1)] = MachineInitialization()
    node_ref: Annotated[NodeReference | None, Field()] = None
    node_info: Annotated[NodeInfo | None, Field()] = None
    last_updated: Annotated[Time | None, Field("Time at which the phase last changed.")] = None
    failure_domain: Annotated[FailureDomainName, Field("Failure domain in which the server was placed.")] = ""
    addresses: Annotated[
        Sequence[MachineAddress], Field("Addresses of the server.", list_type="atomic", max_items=256)
    ] = ()
    phase: Annotated[str, Field("Summary of the conditions in one word.", enum=MACHINE_PHASES)] = ""
    certificates_expiry_date: Annotated[
        Time | None, Field("Time at which the certificates of a control plane Machine expire.")
    ] = None
    observed_generation: Generation = 0
    deletion: Annotated[MachineDeletionStatus, Field()] = MachineDeletionStatus()
    deprecated: Annotated[DeprecatedMachineStatus | None, Field()] = None


class Machine(Object):
    """One server that is, or will become, a Node of a Cluster."""

    spec: Annotated[MachineSpec, Field(required=True)] = MachineSpec()
    status: Annotated[MachineStatus, Field(min_properties=1)] = MachineStatus()

    @property
    def is_control_plane(self) -> bool:
        return names.CONTROL_PLANE in self.metadata.labels


MACHINE = Kind(names.API_VERSION, "Machine", "machines", Machine)
