"""RKEBootstrap, its template, and CustomMachine: a host that registered itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from remuda.kube.conditions import condition
from remuda.kube.objects import Condition, Field, Kind, Object, Part
from remuda.providers.shared import names

AGENT_CONNECTED = (
    "AgentConnected"  # condition of an RKEBootstrap: the host's agent has made its first authenticated call
)
CONNECTED = condition(AGENT_CONNECTED, True, "Connected", "its agent has connected")
NODE_TAMPERED = "NodeTampered"  # the host's account tried to change what is not its own in its plan Secret
TOKEN_MISUSED = "TokenMisused"  # noqa: S105 - another host has shown the token that this one registered with
READY = "Ready"


class UserData(Part):
    """Additions to the bootstrap script of a server."""

    inline_userdata: Annotated[
        str, Field("A #cloud-config whose write_files, runcmd and other keys are kept beside ours.")
    ] = ""


class RKEBootstrapSpec(Part):
    cluster_name: Annotated[str, Field("The Cluster the machine belongs to.", max_length=63)] = ""
    userdata: Annotated[UserData | None, Field("Additional user data.")] = None


class BootstrapInitialization(Part):
    data_secret_created: Annotated[bool | None, Field("The Machine Bootstrap Secret exists.")] = None


class RKEBootstrapStatus(Part):
    data_secret_name: Annotated[str | None, Field("Name of the Machine Bootstrap Secret.")] = None
    initialization: Annotated[BootstrapInitialization, Field("Fields that Cluster API waits for.")] = (
        BootstrapInitialization()
    )
    conditions: Annotated[
        Sequence[Condition], Field("Current state, as conditions.", list_type="map", list_map_keys=("type",))
    ] = ()


class RKEBootstrap(Object):
    """Turns one server into a managed host."""

    spec: RKEBootstrapSpec = RKEBootstrapSpec()
    status: RKEBootstrapStatus = RKEBootstrapStatus()


class TemplateMetadata(Part):
    """Goes to what is made from the template."""

    labels: Annotated[Mapping[str, str], Field("Labels to set.")] = {}
    annotations: Annotated[Mapping[str, str], Field("Annotations to set.")] = {}


class RKEBootstrapTemplateResource(Part):
    metadata: TemplateMetadata = TemplateMetadata()
    spec: Annotated[RKEBootstrapSpec, Field("Spec of each RKEBootstrap.")] = RKEBootstrapSpec()


class RKEBootstrapTemplateSpec(Part):
    cluster_name: Annotated[str, Field("The Cluster its machines belong to.", max_length=63)] = ""
    template: Annotated[RKEBootstrapTemplateResource, Field("Template of the RKEBootstraps.", required=True)] = (
        RKEBootstrapTemplateResource()
    )


class RKEBootstrapTemplate(Object):
    """Template of the RKEBootstraps of a set of machines."""

    spec: RKEBootstrapTemplateSpec = RKEBootstrapTemplateSpec()


class MachineAddress(Part):
    type: Annotated[str, Field("Type of the address.", required=True)] = ""
    address: Annotated[str, Field("Host name or IP address.", required=True, min_length=1, max_length=256)] = ""


class MachineInitialization(Part):
    provisioned: Annotated[bool | None, Field("The server exists and has been bootstrapped.")] = None


class CustomMachineSpec(Part):
    provider_id: Annotated[str, Field("Provider id of the machine's Node.", max_length=512)] = ""


class CustomMachineStatus(Part):
    ready: Annotated[bool, Field("Whether the host has registered.")] = False
    initialization: Annotated[MachineInitialization, Field("Fields that Cluster API waits for.")] = (
        MachineInitialization()
    )
    addresses: Annotated[Sequence[MachineAddress], Field("Addresses of the server.", list_type="atomic")] = ()
    conditions: Annotated[
        Sequence[Condition], Field("Current state, as conditions.", list_type="map", list_map_keys=("type",))
    ] = ()


class CustomMachine(Object):
    """A host that somebody made and that registered itself."""

    spec: CustomMachineSpec = CustomMachineSpec()
    status: CustomMachineStatus = CustomMachineStatus()


RKE_BOOTSTRAP: Kind[RKEBootstrap] = Kind(names.API_VERSION, "RKEBootstrap", "rkebootstraps", RKEBootstrap)
RKE_BOOTSTRAP_TEMPLATE: Kind[RKEBootstrapTemplate] = Kind(
    names.API_VERSION, "RKEBootstrapTemplate", "rkebootstraptemplates", RKEBootstrapTemplate
)
CUSTOM_MACHINE: Kind[CustomMachine] = Kind(names.API_VERSION, "CustomMachine", "custommachines", CustomMachine)
KINDS: tuple[Kind[Any], ...] = (RKE_BOOTSTRAP, RKE_BOOTSTRAP_TEMPLATE, CUSTOM_MACHINE)
