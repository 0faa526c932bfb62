"""MachineSet: so many Machines of one kind. Usually made by a MachineDeployment, one per revision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from remuda.capi import names
from remuda.capi.types.machine import MachineTemplate
from remuda.capi.types.shared import (
    ClusterName,
    Conditions,
    Count,
    Generation,
    MachineNaming,
    OldConditions,
    OldFailureMessage,
    OldFailureReason,
    Selector,
    SetDeletion,
    VersionCount,
)
from remuda.kube.objects import Field, Kind, Object, Part
from remuda.kube.schema import Rule

VersionCounts = Annotated[
    Sequence[VersionCount],
    Field("Number of Machines per Kubernetes version.", list_type="map", list_map_keys=("version",), max_items=100),
]


SAME_CLUSTER = (
    Rule(
        rule="self.clusterName == self.template.spec.clusterName",
        message="must be the same as spec.template.spec.clusterName",
        field_path=".clusterName",
    ),
)


class MachineSetSpec(Part):
    """Desired state of the Machines."""

    cluster_name: ClusterName = ""
    replicas: Annotated[Count | None, Field("Desired number of Machines.")] = None
    selector: Annotated[
        Selector, Field("Labels of the Machines that belong to this object.", required=True, map_type="atomic")
    ] = Selector()
    template: Annotated[MachineTemplate, Field(required=True)] = MachineTemplate()
    machine_naming: Annotated[MachineNaming, Field(min_properties=1)] = MachineNaming()
    deletion: Annotated[SetDeletion, Field(min_properties=1)] = SetDeletion()


class OldMachineSetStatus(Part):
    """Status fields of the v1beta1 API."""

    conditions: OldConditions = ()
    failure_reason: OldFailureReason = ""
    failure_message: OldFailureMessage = ""
    fully_labeled_replicas: Annotated[Count, Field("Number of Machines that have all labels of the template.")] = 0
    ready_replicas: Annotated[Count, Field("Number of Machines with a ready Node.")] = 0
    available_replicas: Annotated[
        Count, Field("Number of Machines with a Node that has been ready for minReadySeconds.")
    ] = 0


class DeprecatedMachineSetStatus(Part):
    """Deprecated status fields, for clients of older API versions."""

    v1beta1: Annotated[OldMachineSetStatus | None, Field()] = None


class MachineSetStatus(Part):
    """Observed state of the Machines."""

    conditions: Conditions = ()
    selector: Annotated[str, Field("Selector as text, for autoscalers.", min_length=1, max_length=4096)] = ""
    replicas: Annotated[Count | None, Field("Number of Machines.")] = None
    ready_replicas: Annotated[Count | None, Field("Number of ready Machines.")] = None
    available_replicas: Annotated[Count | None, Field("Number of available Machines.")] = None
    up_to_date_replicas: Annotated[Count | None, Field("Number of up-to-date Machines.")] = None
    versions: VersionCounts = ()
    observed_generation: Generation = 0
    deprecated: Annotated[DeprecatedMachineSetStatus | None, Field()] = None


class MachineSet(Object):
    """A fixed number of Machines from one template."""

    spec: Annotated[MachineSetSpec, Field(required=True, rules=SAME_CLUSTER)] = MachineSetSpec()
    status: Annotated[MachineSetStatus, Field(min_properties=1)] = MachineSetStatus()


MACHINE_SET = Kind(names.API_VERSION, "MachineSet", "machinesets", MachineSet)
