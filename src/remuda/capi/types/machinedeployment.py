"""MachineDeployment: Machines that follow their template, replaced step by step when it changes."""

from __future__ import annotations

from typing import Annotated

from remuda.capi import names
from remuda.capi.types.machine import MachineTemplate
from remuda.capi.types.machineset import SAME_CLUSTER, VersionCounts
from remuda.capi.types.shared import (
    ClusterName,
    Conditions,
    Count,
    Generation,
    MachineNaming,
    OldConditions,
    Percentage,
    Selector,
    SetDeletion,
    Time,
)
from remuda.kube.objects import Field, Kind, Object, Part

MACHINE_DEPLOYMENT_PHASES = ("ScalingUp", "ScalingDown", "Running", "Failed", "Unknown")


class RollingUpdate(Part):
    """Limits of a rolling update."""

    max_surge: Annotated[
        Percentage, Field('Number of Machines above replicas during a rollout; a number or "25%"; 1 if unset.')
    ] = 1
    max_unavailable: Annotated[
        Percentage, Field('Number of Machines that may be unavailable; a number or "25%"; 0 if unset.')
    ] = 0


class RolloutStrategy(Part):
    """Strategy for replacing Machines."""

    type: Annotated[
        str,
        Field(
            "RollingUpdate: replace Machines step by step. OnDelete: replace a Machine when the user deletes it.",
            required=True,
            enum=("RollingUpdate", "OnDelete"),
        ),
    ] = "RollingUpdate"
    rolling_update: Annotated[RollingUpdate, Field(min_properties=1)] = RollingUpdate()


class Rollout(Part):
    """Time and strategy of a rollout."""

    after: Annotated[
        Time | None, Field("Once this time has passed, Machines that were created before it are replaced.")
    ] = None
    strategy: Annotated[RolloutStrategy, Field(min_properties=1)] = RolloutStrategy()


class DeploymentRemediation(Part):
    """Limits for replacing unhealthy Machines."""

    max_in_flight: Annotated[
        Percentage | None,
        Field('Number of Machines that are remediated at once; a number or "25%"; no limit if unset.'),
    ] = None


class MachineDeploymentSpec(Part):
    """Desired state of the Machines."""

    cluster_name: ClusterName = ""
    replicas: Annotated[Count | None, Field("Desired number of Machines.")] = None
    rollout: Annotated[Rollout, Field(min_properties=1)] = Rollout()
    selector: Annotated[
        Selector, Field("Labels of the Machines that belong to this object.", required=True, map_type="atomic")
    ] = Selector()
    template: Annotated[MachineTemplate, Field(required=True)] = MachineTemplate()
    machine_naming: Annotated[MachineNaming, Field(min_properties=1)] = MachineNaming()
    remediation: Annotated[DeploymentRemediation, Field(min_properties=1)] = DeploymentRemediation()
    deletion: Annotated[SetDeletion, Field(min_properties=1)] = SetDeletion()
    paused: Annotated[bool, Field("While true, a change of the template does not replace Machines.")] = False


class OldMachineDeploymentStatus(Part):
    """Status fields of the v1beta1 API."""

    conditions: OldConditions = ()
    updated_replicas: Annotated[Count, Field("Number of Machines of the current template.")] = 0
    ready_replicas: Annotated[Count, Field("Number of Machines with a ready Node.")] = 0
    available_replicas: Annotated[
        Count, Field("Number of Machines with a Node that has been ready for minReadySeconds.")
    ] = 0
    unavailable_replicas: Annotated[Count, Field("Number of Machines missing to the desired number.")] = 0


class DeprecatedMachineDeploymentStatus(Part):
    """Deprecated status fields, for clients of older API versions."""

    v1beta1: Annotated[OldMachineDeploymentStatus | None, Field()] = None


class MachineDeploymentStatus(Part):
    """Observed state of the Machines."""

    conditions: Conditions = ()
    observed_generation: Generation = 0
    selector: Annotated[str, Field("Selector as text, for autoscalers.", min_length=1, max_length=4096)] = ""
    replicas: Annotated[Count | None, Field("Number of Machines.")] = None
    ready_replicas: Annotated[Count | None, Field("Number of ready Machines.")] = None
    available_replicas: Annotated[Count | None, Field("Number of available Machines.")] = None
    up_to_date_replicas: Annotated[Count | None, Field("Number of up-to-date Machines.")] = None
    versions: VersionCounts = ()
    phase: Annotated[str, Field("Summary of the conditions in one word.", enum=MACHINE_DEPLOYMENT_PHASES)] = ""
    deprecated: Annotated[DeprecatedMachineDeploymentStatus | None, Field()] = None


class MachineDeployment(Object):
    """Replicated Machines that are replaced step by step when their template changes."""

    spec: Annotated[MachineDeploymentSpec, Field(required=True, rules=SAME_CLUSTER)] = MachineDeploymentSpec()
    status: Annotated[MachineDeploymentStatus, Field(min_properties=1)] = MachineDeploymentStatus()


MACHINE_DEPLOYMENT = Kind(names.API_VERSION, "MachineDeployment", "machinedeployments", MachineDeployment)
