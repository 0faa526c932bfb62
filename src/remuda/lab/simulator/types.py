"""The simulated provider's objects as types: specs, which script how things go, and the statuses of either contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from remuda.capi.types.cluster import Endpoint, FailureDomain
from remuda.capi.types.machine import MachineAddress, MachineDeletion
from remuda.capi.types.shared import (
    Conditions,
    Count,
    FailureDomainName,
    OldConditions,
    Reference,
    TemplateMetadata,
    Time,
    Version,
    VersionCount,
)
from remuda.kube.objects import Field, Object, Part

Duration = Annotated[float, Field(minimum=0)]
Times = Annotated[int, Field(minimum=0)]


class Script(Part):
    """Script of simulated work."""

    seconds: Annotated[Duration, Field("How long it takes.")] = 0.0
    failures: Annotated[Times, Field("So many attempts fail first.")] = 0
    never: Annotated[bool, Field("It is never done.")] = False


class MachineScript(Part):
    """Script for one server and its Node."""

    boot_seconds: Annotated[Duration, Field("From creating the server until it runs.")] = 0.0
    node_seconds: Annotated[Duration, Field("From the running server until its Node is there.")] = 0.0
    refusals: Annotated[Times, Field("So many attempts to create the server fail first.")] = 0
    answers_lost: Annotated[Times, Field("So many more create it, and the answer is lost.")] = 0
    bootstrap_fails: Annotated[bool, Field("The server runs, and never becomes a Node.")] = False
    node_fails_after_seconds: Annotated[
        Duration | None, Field("So long after it appeared, the Node is not ready any more.")
    ] = None
    node_vanishes_after_seconds: Annotated[Duration | None, Field("So long after it appeared, the Node is gone.")] = (
        None
    )


# Specs, the same in both families


class SimulatedClusterSpec(Part):
    """Settings that the servers of a cluster share."""

    control_plane_endpoint: Annotated[Endpoint, Field(min_properties=1)] = Endpoint()
    without_endpoint: Annotated[bool, Field("The endpoint is left to the control plane.")] = False
    failure_domains: Annotated[
        Sequence[FailureDomain], Field("Where servers can be put.", list_type="map", list_map_keys=("name",))
    ] = ()
    script: Script = Script()


class SimulatedMachineSpec(Part):
    """One server."""

    provider_id: Annotated[str, Field("The server's identity; filled in.", max_length=512)] = ""
    failure_domain: Annotated[FailureDomainName, Field("Where it was put; filled in under v1beta1.")] = ""
    script: MachineScript = MachineScript()


class SimulatedBootstrapSpec(Part):
    """Script that turns one server into a Node."""

    script: Script = Script()


class SimulatedRemediationSpec(Part):
    """Script for the remediation of one unhealthy Machine."""

    script: Script = Script()


class MachineTemplateSpec(Part):
    """Template spec of control plane Machines."""

    infrastructure_ref: Annotated[Reference, Field("The template of their servers.", required=True)] = Reference()
    deletion: MachineDeletion = MachineDeletion()


class MachineTemplate(Part):
    """Template of control plane Machines."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: Annotated[MachineTemplateSpec, Field(required=True)] = MachineTemplateSpec()


class OldReference(Part):
    """An object, as the v1beta1 contract refers to it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""


class OldMachineTemplate(Part):
    """Template of control plane Machines."""

    metadata: TemplateMetadata = TemplateMetadata()
    infrastructure_ref: Annotated[OldReference, Field("The template of their servers.", required=True)] = OldReference()


class RolloutSpec(Part):
    """Time-based replacement of Machines, although nothing else asks for it."""

    after: Annotated[Time | None, Field("Machines made before this time are replaced once it has come.")] = None


class ControlPlaneSpec(Part):
    """The control plane as it shall be."""

    replicas: Annotated[Count | None, Field("How many Machines; 1 if unset.", minimum=0)] = None
    version: Annotated[Version, Field("Their Kubernetes version.", required=True)] = ""
    control_plane_endpoint: Annotated[Endpoint, Field(min_properties=1)] = Endpoint()
    bootstrap: Annotated[Script, Field("How it goes with the bootstrap of each Machine.")] = Script()


class SimulatedControlPlaneSpec(ControlPlaneSpec):
    """The control plane as it shall be."""

    machine_template: Annotated[MachineTemplate, Field(required=True)] = MachineTemplate()
    rollout: RolloutSpec = RolloutSpec()


class OldSimulatedControlPlaneSpec(ControlPlaneSpec):
    """The control plane as it shall be."""

    machine_template: Annotated[OldMachineTemplate, Field(required=True)] = OldMachineTemplate()
    rollout_after: Annotated[Time | None, Field("Machines made before this time are replaced once it has come.")] = None


# Statuses under the v1beta2 contract


class Provisioned(Part):
    """Facts that are set once and never reset."""

    provisioned: Annotated[bool, Field("It exists and can be used.")] = False


class SimulatedClusterStatus(Part):
    """Observed state."""

    initialization: Provisioned = Provisioned()
    failure_domains: Annotated[Sequence[FailureDomain], Field(list_type="map", list_map_keys=("name",))] = ()
    conditions: Conditions = ()


class SimulatedMachineStatus(Part):
    """Observed state."""

    initialization: Provisioned = Provisioned()
    failure_domain: FailureDomainName = ""
    addresses: Annotated[Sequence[MachineAddress], Field(list_type="atomic")] = ()
    conditions: Conditions = ()


class DataSecretCreated(Part):
    """Facts that are set once and never reset."""

    data_secret_created: Annotated[bool, Field("The Secret exists.")] = False


class SimulatedBootstrapStatus(Part):
    """Observed state."""

    initialization: DataSecretCreated = DataSecretCreated()
    data_secret_name: str = ""
    conditions: Conditions = ()


class ControlPlaneInitialized(Part):
    """Facts that are set once and never reset."""

    control_plane_initialized: Annotated[bool, Field("The API has answered once.")] = False


class SimulatedControlPlaneStatus(Part):
    """Observed state."""

    initialization: ControlPlaneInitialized = ControlPlaneInitialized()
    selector: str = ""
    replicas: Count | None = None
    ready_replicas: Count | None = None
    available_replicas: Count | None = None
    up_to_date_replicas: Count | None = None
    versions: Annotated[Sequence[VersionCount], Field(list_type="atomic")] = ()
    conditions: Conditions = ()


class SimulatedRemediationStatus(Part):
    """Result of the remediation."""

    done: Annotated[bool, Field("The server was restarted.")] = False


# Statuses under the v1beta1 contract


class OldStatus(Part):
    """Observed state."""

    ready: Annotated[bool, Field("It can be used.")] = False
    conditions: OldConditions = ()
    failure_reason: str = ""
    failure_message: str = ""


class OldFailureDomain(Part):
    """A place servers can be put that fails on its own."""

    control_plane: bool = False
    attributes: Annotated[Mapping[str, str], Field("What the provider says of it.")] = {}


class OldSimulatedClusterStatus(OldStatus):
    """Observed state."""

    failure_domains: Mapping[str, OldFailureDomain] = {}


class OldSimulatedMachineStatus(OldStatus):
    """Observed state."""

    addresses: Annotated[Sequence[MachineAddress], Field(list_type="atomic")] = ()


class OldSimulatedBootstrapStatus(OldStatus):
    """Observed state."""

    data_secret_name: str = ""


class OldSimulatedControlPlaneStatus(OldStatus):
    """Observed state."""

    initialized: Annotated[bool, Field("The API has answered once.")] = False
    selector: str = ""
    replicas: Count | None = None
    ready_replicas: Count | None = None
    updated_replicas: Count | None = None
    unavailable_replicas: Count | None = None
    version: str = ""


# Objects. Controllers read the v1beta2 ones; of the v1beta1 ones they read what `contract` says.


class SimulatedCluster(Object):
    """Settings that the simulated servers of a cluster share."""

    spec: SimulatedClusterSpec = SimulatedClusterSpec()
    status: SimulatedClusterStatus = SimulatedClusterStatus()


class OldSimulatedCluster(Object):
    """Settings that the simulated servers of a cluster share."""

    spec: SimulatedClusterSpec = SimulatedClusterSpec()
    status: OldSimulatedClusterStatus = OldSimulatedClusterStatus()


class SimulatedMachine(Object):
    """One simulated server."""

    spec: SimulatedMachineSpec = SimulatedMachineSpec()
    status: SimulatedMachineStatus = SimulatedMachineStatus()


class OldSimulatedMachine(Object):
    """One simulated server."""

    spec: SimulatedMachineSpec = SimulatedMachineSpec()
    status: OldSimulatedMachineStatus = OldSimulatedMachineStatus()


class SimulatedBootstrap(Object):
    """Bootstrap of one simulated server, which becomes a Node."""

    spec: SimulatedBootstrapSpec = SimulatedBootstrapSpec()
    status: SimulatedBootstrapStatus = SimulatedBootstrapStatus()


class OldSimulatedBootstrap(Object):
    """Bootstrap of one simulated server, which becomes a Node."""

    spec: SimulatedBootstrapSpec = SimulatedBootstrapSpec()
    status: OldSimulatedBootstrapStatus = OldSimulatedBootstrapStatus()


class SimulatedControlPlane(Object):
    """A control plane of simulated servers."""

    spec: Annotated[SimulatedControlPlaneSpec, Field(required=True)] = SimulatedControlPlaneSpec()
    status: SimulatedControlPlaneStatus = SimulatedControlPlaneStatus()


class OldSimulatedControlPlane(Object):
    """A control plane of simulated servers."""

    spec: Annotated[OldSimulatedControlPlaneSpec, Field(required=True)] = OldSimulatedControlPlaneSpec()
    status: OldSimulatedControlPlaneStatus = OldSimulatedControlPlaneStatus()


class SimulatedRemediation(Object):
    """Restarts the server of one unhealthy Machine, which makes its Node ready again."""

    spec: SimulatedRemediationSpec = SimulatedRemediationSpec()
    status: SimulatedRemediationStatus = SimulatedRemediationStatus()


class _MachineTemplateResource(Part):
    """Machine created from the template."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: SimulatedMachineSpec = SimulatedMachineSpec()


class _MachineTemplateSpec(Part):
    """Template spec."""

    template: Annotated[_MachineTemplateResource, Field(required=True)] = _MachineTemplateResource()


class SimulatedMachineTemplate(Object):
    """Template of SimulatedMachines."""

    spec: Annotated[_MachineTemplateSpec, Field(required=True)] = _MachineTemplateSpec()


class _BootstrapTemplateResource(Part):
    """Bootstrap created from the template."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: SimulatedBootstrapSpec = SimulatedBootstrapSpec()


class _BootstrapTemplateSpec(Part):
    """Template spec."""

    template: Annotated[_BootstrapTemplateResource, Field(required=True)] = _BootstrapTemplateResource()


class SimulatedBootstrapTemplate(Object):
    """Template of SimulatedBootstraps."""

    spec: Annotated[_BootstrapTemplateSpec, Field(required=True)] = _BootstrapTemplateSpec()


class _RemediationTemplateResource(Part):
    """Remediation created from the template."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: SimulatedRemediationSpec = SimulatedRemediationSpec()


class _RemediationTemplateSpec(Part):
    """Template spec."""

    template: Annotated[_RemediationTemplateResource, Field(required=True)] = _RemediationTemplateResource()


class SimulatedRemediationTemplate(Object):
    """Template of SimulatedRemediations."""

    spec: Annotated[_RemediationTemplateSpec, Field(required=True)] = _RemediationTemplateSpec()
