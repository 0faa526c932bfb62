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
    """How far a rollout may stray from the wanted number."""

    max_surge: Annotated[Percentage, Field('How many more there may be; a number or "25%"; 1 if unset.')] = 1
    max_unavailable: Annotated[Percentage, Field("How many fewer may be available; likewise; 0 if unset.")] = 0


class RolloutStrategy(Part):
    """How Machines are replaced."""

    type: Annotated[
        str,
        Field(
            "RollingUpdate: step by step. OnDelete: when somebody deletes one.",
            required=True,
            enum=("RollingUpdate", "OnDelete"),
        ),
    ] = "RollingUpdate"
    rolling_update: Annotated[RollingUpdate, Field(min_properties=1)] = RollingUpdate()


class Rollout(Part):
    """When and how Machines are replaced."""

    after: Annotated[Time | None, Field("Once this is past, Machines made before it are replaced.")] = None
    strategy: Annotated[RolloutStrategy, Field(min_properties=1)] = RolloutStrategy()


class DeploymentRemediation(Part):
    """How unhealthy Machines are replaced."""

    max_in_flight: Annotated[Percentage | None, Field('How many at once; a number or "25%"; all of them if unset.')] = (
        None
    )


class MachineDeploymentSpec(Part):
    """The Machines as they shall be."""

    cluster_name: ClusterName = ""
    replicas: Annotated[Count | None, Field("How many Machines there shall be.")] = None
    rollout: Annotated[Rollout, Field(min_properties=1)] = Rollout()
    selector: Annotated[Selector, Field("Which Machines are counted.", required=True, map_type="atomic")] = Selector()
    template: Annotated[MachineTemplate, Field(required=True)] = MachineTemplate()
    machine_naming: Annotated[MachineNaming, Field(min_properties=1)] = MachineNaming()
    remediation: Annotated[DeploymentRemediation, Field(min_properties=1)] = DeploymentRemediation()
    deletion: Annotated[SetDeletion, Field(min_properties=1)] = SetDeletion()
    paused: Annotated[bool, Field("While true, a change of the template replaces nothing.")] = False


class OldMachineDeploymentStatus(Part):
    """What the v1beta1 API says in its status."""

    conditions: OldConditions = ()
    updated_replicas: Annotated[Count, Field("How many are made from the present template.")] = 0
    ready_replicas: Annotated[Count, Field("How many have a Node that is ready.")] = 0
    available_replicas: Annotated[Count, Field("How many have a Node that has been ready for long enough.")] = 0
    unavailable_replicas: Annotated[Count, Field("How many are missing to the wanted number.")] = 0


class DeprecatedMachineDeploymentStatus(Part):
    """Kept for readers of older APIs."""

    v1beta1: Annotated[OldMachineDeploymentStatus | None, Field()] = None


class MachineDeploymentStatus(Part):
    """The Machines as they are."""

    conditions: Conditions = ()
    observed_generation: Generation = 0
    selector: Annotated[str, Field("The selector as text, for autoscalers.", min_length=1, max_length=4096)] = ""
    replicas: Annotated[Count | None, Field("How many Machines there are.")] = None
    ready_replicas: Annotated[Count | None, Field("How many are ready.")] = None
    available_replicas: Annotated[Count | None, Field("How many are available.")] = None
    up_to_date_replicas: Annotated[Count | None, Field("How many are as they shall be.")] = None
    versions: VersionCounts = ()
    phase: Annotated[str, Field("The conditions in one word, for people.", enum=MACHINE_DEPLOYMENT_PHASES)] = ""
    deprecated: Annotated[DeprecatedMachineDeploymentStatus | None, Field()] = None


class MachineDeployment(Object):
    """Machines that follow their template."""

    spec: Annotated[MachineDeploymentSpec, Field(required=True, rules=SAME_CLUSTER)] = MachineDeploymentSpec()
    status: Annotated[MachineDeploymentStatus, Field(min_properties=1)] = MachineDeploymentStatus()


MACHINE_DEPLOYMENT = Kind(names.API_VERSION, "MachineDeployment", "machinedeployments", MachineDeployment)
