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
    """How the server becomes a Node: an object of a bootstrap provider, or data made by somebody else."""

    config_ref: Annotated[Reference | None, Field("The bootstrap provider's object.")] = None
    data_secret_name: Annotated[
        str | None, Field("The Secret with the bootstrap data; filled in when configRef is set.", max_length=253)
    ] = None


class MachineDeletion(Part):
    """How long each step of a deletion may take. 0 means without limit."""

    node_drain_timeout_seconds: Annotated[Seconds | None, Field("Moving Pods away from the Node.")] = None
    node_volume_detach_timeout_seconds: Annotated[Seconds | None, Field("Detaching its volumes.")] = None
    node_deletion_timeout_seconds: Annotated[Seconds | None, Field("Deleting the Node; 10 if unset.")] = None


class MachineSpec(Part):
    """The server as it shall be."""

    cluster_name: ClusterName = ""
    bootstrap: Annotated[Bootstrap, Field(required=True)] = Bootstrap()
    infrastructure_ref: Annotated[
        Reference, Field("The infrastructure provider's object, which is the server.", required=True)
    ] = Reference()
    version: Annotated[Version, Field('The Kubernetes version, as in "v1.35.2".')] = ""
    provider_id: Annotated[
        str,
        Field(
            "The server's identity, the same as on its Node; taken from its infrastructure.",
            min_length=1,
            max_length=512,
        ),
    ] = ""
    failure_domain: Annotated[FailureDomainName, Field("Where the server shall be placed.")] = ""
    min_ready_seconds: Annotated[Seconds, Field("How long it must be ready to count as available.")] = 0
    readiness_gates: Annotated[
        ConditionGates, Field("Conditions that must hold besides the usual ones for Ready.")
    ] = ()
    deletion: Annotated[MachineDeletion, Field(min_properties=1)] = MachineDeletion()
    taints: Annotated[
        Sequence[MachineTaint],
        Field("Taints of the Node.", list_type="map", list_map_keys=("key", "effect"), min_items=1, max_items=64),
    ] = ()


class MachineTemplate(Part):
    """What new Machines are made from."""

    metadata: Annotated[TemplateMetadata, Field(min_properties=1)] = TemplateMetadata()
    spec: Annotated[MachineSpec, Field(required=True)] = MachineSpec()


class NodeReference(Part):
    """The Node this Machine became."""

    name: Annotated[ObjectName, Field("Its name.", required=True)] = ""


class NodeSwap(Part):
    """Swap of the node."""

    capacity: Annotated[int | None, Field("In bytes.", format="int64")] = None


class NodeInfo(Part):
    """What the Node says of its system."""

    machine_id: Annotated[str, Field("The id in /etc/machine-id.", required=True)] = ""
    system_uuid: Annotated[str, Field("The hardware's UUID.", required=True)] = msgspec.field(
        default="", name="systemUUID"
    )
    boot_id: Annotated[str, Field("Changes with every boot.", required=True)] = ""
    kernel_version: Annotated[str, Field("Its kernel.", required=True)] = ""
    os_image: Annotated[str, Field("Its operating system, in words.", required=True)] = ""
    container_runtime_version: Annotated[str, Field("Its container runtime.", required=True)] = ""
    kubelet_version: Annotated[str, Field("Its kubelet.", required=True)] = ""
    kube_proxy_version: Annotated[str, Field("Its kube-proxy.", required=True)] = ""
    operating_system: Annotated[str, Field('Its operating system, as in "linux".', required=True)] = ""
    architecture: Annotated[str, Field('Its architecture, as in "amd64".', required=True)] = ""
    swap: Annotated[NodeSwap | None, Field()] = None


class MachineAddress(Part):
    """One address of the server."""

    type: Annotated[str, Field("What kind of address.", required=True, enum=ADDRESS_TYPES)] = ""
    address: Annotated[str, Field("The address.", required=True, min_length=1, max_length=256)] = ""


class MachineInitialization(Part):
    """What has happened once, and is never taken back."""

    infrastructure_provisioned: Annotated[bool, Field("The server exists.")] = False
    bootstrap_data_secret_created: Annotated[bool, Field("The bootstrap data exists.")] = False


class MachineDeletionStatus(Part):
    """How far a deletion has come."""

    node_drain_start_time: Annotated[Time | None, Field("When the drain began.")] = None
    wait_for_node_volume_detach_start_time: Annotated[Time | None, Field("When waiting for volumes began.")] = None
    wait_for_pre_drain_hook_start_time: Annotated[Time | None, Field("When waiting for pre-drain hooks began.")] = None
    wait_for_pre_terminate_hook_start_time: Annotated[
        Time | None, Field("When waiting for pre-terminate hooks began.")
    ] = None


class OldMachineStatus(Part):
    """What the v1beta1 API says in its status."""

    conditions: OldConditions = ()
    failure_reason: OldFailureReason = ""
    failure_message: OldFailureMessage = ""


class DeprecatedMachineStatus(Part):
    """Kept for readers of older APIs."""

    v1beta1: Annotated[OldMachineStatus | None, Field()] = None


class MachineStatus(Part):
    """The server as it is."""

    conditions: Conditions = ()
    initialization: Annotated[MachineInitialization, Field(min_properties=1)] = MachineInitialization()
    node_ref: Annotated[NodeReference | None, Field()] = None
    node_info: Annotated[NodeInfo | None, Field()] = None
    last_updated: Annotated[Time | None, Field("When the phase last changed.")] = None
    failure_domain: Annotated[FailureDomainName, Field("Where the server was placed.")] = ""
    addresses: Annotated[
        Sequence[MachineAddress], Field("The server's addresses.", list_type="atomic", max_items=256)
    ] = ()
    phase: Annotated[str, Field("The conditions in one word, for people.", enum=MACHINE_PHASES)] = ""
    certificates_expiry_date: Annotated[Time | None, Field("When a control plane's certificates expire.")] = None
    observed_generation: Generation = 0
    deletion: Annotated[MachineDeletionStatus, Field()] = MachineDeletionStatus()
    deprecated: Annotated[DeprecatedMachineStatus | None, Field()] = None


class Machine(Object):
    """One server that is or shall become a Node of a Cluster."""

    spec: Annotated[MachineSpec, Field(required=True)] = MachineSpec()
    status: Annotated[MachineStatus, Field(min_properties=1)] = MachineStatus()

    @property
    def is_control_plane(self) -> bool:
        return names.CONTROL_PLANE in self.metadata.labels


MACHINE = Kind(names.API_VERSION, "Machine", "machines", Machine)
