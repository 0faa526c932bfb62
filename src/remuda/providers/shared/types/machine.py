"""NodeDriver, and what the machines of every driver have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from remuda.kube.objects import Condition, Field, Kind, Object, Part
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import MachineAddress, MachineInitialization, TemplateMetadata

# Conditions of a <Driver>Machine.
READY = "Ready"
CREATE_JOB = "CreateJob"
DELETE_JOB = "DeleteJob"
STALLED = names.STALLED  # no further attempt is made: a person has to look

# Reasons for a failure, also in status.failureReason.
CREATE_ERROR = "CreateError"
DELETE_ERROR = "DeleteError"

# Reasons of Ready, of machines and of RKEClusters, for a Job that cannot be created.
BAD_CREDENTIAL_REFERENCE = "BadCredentialReference"
CREDENTIAL_NOT_FOUND = "CredentialNotFound"
CREDENTIAL_FORBIDDEN = "CredentialForbidden"
FOREIGN_BOOTSTRAP_DATA = "ForeignBootstrapData"
NEEDS_JOB_RUNNER = "NeedsJobRunner"
OUT_OF_REACH = "ServerUrlOnlyHere"
CANNOT_CHANGE = "CannotChange"
NO_SUCH_DRIVER = "NoSuchDriver"
# Reasons that last until a user acts: a client that waits for the machine waits in vain.
NEEDS_USER = frozenset(
    {
        STALLED,
        BAD_CREDENTIAL_REFERENCE,
        CREDENTIAL_NOT_FOUND,
        CREDENTIAL_FORBIDDEN,
        FOREIGN_BOOTSTRAP_DATA,
        NEEDS_JOB_RUNNER,
        OUT_OF_REACH,
        CANNOT_CHANGE,
        NO_SUCH_DRIVER,
    }
)


class NodeDriverSpec(Part):
    display_name: Annotated[str, Field("Name of the driver; its machines are <Name>Machines.", max_length=57)] = ""
    description: Annotated[str, Field("Description of the driver.")] = ""
    url: Annotated[
        str,
        Field("Source of the driver: local:// for an installed one, else the path or URL of a docker-machine plugin."),
    ] = ""
    checksum: Annotated[str, Field("sha256 of the download.", pattern="^([0-9a-f]{64})?$")] = ""
    builtin: Annotated[bool, Field("Whether the driver is built in.")] = False
    active: Annotated[bool, Field("Whether its kinds are served.")] = False
    add_cloud_credential: Annotated[bool, Field("Whether the driver has a form for credentials.")] = False
    ui_url: Annotated[str, Field("A form for a web page; not used.")] = ""
    whitelist_domains: Annotated[Sequence[str], Field("Hosts that its form connects to; not used.")] = ()
    external_id: Annotated[str, Field("Origin of the driver; not used.")] = ""


class NodeDriverStatus(Part):
    conditions: Annotated[
        Sequence[Condition], Field("Current state, as conditions.", list_type="map", list_map_keys=("type",))
    ] = ()


class NodeDriver(Object):
    """A kind of infrastructure that machines can be made on."""

    spec: NodeDriverSpec = NodeDriverSpec()
    status: NodeDriverStatus = NodeDriverStatus()


class NodeTaint(Part):
    key: Annotated[str, Field("Its key.", required=True)] = ""
    value: Annotated[str, Field("Its value.")] = ""
    effect: Annotated[str, Field("NoSchedule, PreferNoSchedule or NoExecute.", required=True)] = ""


class Common(Part):
    """Fields of every driver's machines, besides the driver's own options."""

    labels: Annotated[Mapping[str, str], Field("Labels of the pool's nodes.")] = {}
    taints: Annotated[Sequence[NodeTaint], Field("Taints of the pool's nodes.", list_type="atomic")] = ()
    cloud_credential_secret_name: Annotated[
        str, Field("A Secret with credentials: name, or namespace:name.", max_length=317)
    ] = ""


class DriverMachineSpec(Part):
    """The driver's options stand beside these fields; they are read from the raw object."""

    common: Annotated[Common, Field("Fields that all drivers have in common.")] = Common()
    provider_id: Annotated[str, Field("Provider id of the machine's Node.", max_length=512)] = ""


class DriverMachineStatus(Part):
    conditions: Annotated[
        Sequence[Condition], Field("Current state, as conditions.", list_type="map", list_map_keys=("type",))
    ] = ()
    job_name: Annotated[str, Field("Name of the current or last Job.")] = ""
    ready: Annotated[bool, Field("The server runs and has been bootstrapped.")] = False
    driver_hash: Annotated[str, Field("sha256 of the driver's program, if it is one.")] = ""
    driver_url: Annotated[str, Field("Where the driver's program came from, if it is one.")] = ""
    cloud_credential_secret_name: Annotated[str, Field("Credential that the server was created with.")] = ""
    failure_reason: Annotated[str, Field("Reason of the last failure, in one word.")] = ""
    failure_message: Annotated[str, Field("Message of the last failure: the last output of the Job.")] = ""
    failures: Annotated[int, Field("Number of consecutive failed attempts.", minimum=0)] = 0
    last_failure_time: Annotated[str | None, Field("Time of the last failure.", format="date-time")] = None
    counted_job: Annotated[str, Field("uid of the last Job whose result is in this status.")] = ""
    retried: Annotated[str, Field("Last handled value of the annotation remuda.dev/retry.")] = ""
    addresses: Annotated[Sequence[MachineAddress], Field("Addresses of the server.", list_type="atomic")] = ()
    failure_domain: Annotated[str, Field("Failure domain of the server.")] = ""
    initialization: Annotated[MachineInitialization, Field("Fields that Cluster API waits for.")] = (
        MachineInitialization()
    )


class DriverMachine(Object):
    """A server on this driver's infrastructure."""

    spec: Annotated[DriverMachineSpec, Field(required=True)] = DriverMachineSpec()
    status: DriverMachineStatus = DriverMachineStatus()


class DriverMachineTemplateResource(Part):
    metadata: Annotated[TemplateMetadata, Field("Metadata of each machine.")] = TemplateMetadata()
    spec: Annotated[DriverMachineSpec, Field("Spec of each machine.", required=True)] = DriverMachineSpec()


class DriverMachineTemplateSpec(Part):
    cluster_name: Annotated[str, Field("The Cluster its machines belong to.", max_length=63)] = ""
    template: Annotated[DriverMachineTemplateResource, Field("Template of the machines.", required=True)] = (
        DriverMachineTemplateResource()
    )


class DriverMachineTemplate(Object):
    """Template of the machines of a pool."""

    spec: Annotated[DriverMachineTemplateSpec, Field(required=True)] = DriverMachineTemplateSpec()


class DriverConfig(Object):
    """Options of this driver, as a pool of a provisioning Cluster refers to them. They stand at the root."""


NODE_DRIVER: Kind[NodeDriver] = Kind(
    names.MANAGEMENT_API_VERSION, "NodeDriver", "nodedrivers", NodeDriver, namespaced=False
)


def capital(driver: str) -> str:
    """nspawn → Nspawn: how its kinds begin."""
    return driver[:1].upper() + driver[1:]


def machine_kind(driver: str) -> Kind[DriverMachine]:
    name = f"{capital(driver)}Machine"
    return Kind(names.MACHINE_API_VERSION, name, f"{name.lower()}s", DriverMachine)


def template_kind(driver: str) -> Kind[DriverMachineTemplate]:
    name = f"{capital(driver)}MachineTemplate"
    return Kind(names.MACHINE_API_VERSION, name, f"{name.lower()}s", DriverMachineTemplate)


def config_kind(driver: str) -> Kind[DriverConfig]:
    name = f"{capital(driver)}Config"
    return Kind(names.CONFIG_API_VERSION, name, f"{name.lower()}s", DriverConfig)


def options_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The driver's own fields of a raw spec."""
    return {name: value for name, value in spec.items() if name not in ("common", "providerID")}


KINDS: tuple[Kind[Any], ...] = (NODE_DRIVER,)
