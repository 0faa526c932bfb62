"""MachineHealthCheck: when a Machine counts as unhealthy, and what is done about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from remuda.capi import names
from remuda.capi.types.shared import (
    ClusterName,
    Conditions,
    ConditionType,
    Generation,
    Int32,
    OldConditions,
    Percentage,
    Seconds,
    Selector,
    TemplateReference,
)
from remuda.kube.objects import Field, Kind, Object, Part
from remuda.kube.schema import Rule

# These conditions are derived from the health check itself: taking them as its input would never end.
DERIVED_CONDITIONS = ("Ready", "Available", "HealthCheckSucceeded", "OwnerRemediated", "ExternallyRemediated")

Amount = Annotated[Int32, Field(minimum=0)]


class UnhealthyNodeCondition(Part):
    """A Node whose condition has had this status for so long is unhealthy."""

    type: Annotated[str, Field("The Node condition's type.", required=True, min_length=1)] = ""
    status: Annotated[str, Field("Its status.", required=True, min_length=1)] = ""
    timeout_seconds: Annotated[Seconds, Field("For how long.", required=True)] = 0


class UnhealthyMachineCondition(Part):
    """A Machine whose condition has had this status for so long is unhealthy."""

    type: Annotated[
        ConditionType,
        Field(
            "The Machine condition's type.",
            required=True,
            rules=(
                Rule(
                    rule=f"!(self in [{','.join(repr(name) for name in DERIVED_CONDITIONS)}])",
                    message=f"type must not be one of: {', '.join(DERIVED_CONDITIONS)}",
                ),
            ),
        ),
    ] = ""
    status: Annotated[str, Field("Its status.", required=True, enum=("True", "False", "Unknown"))] = ""
    timeout_seconds: Annotated[Seconds, Field("For how long.", required=True)] = 0


class HealthChecks(Part):
    """What makes a Machine unhealthy."""

    node_startup_timeout_seconds: Annotated[
        Seconds | None, Field("How long a Machine may take to get its Node; 600 if unset, 0 for no limit.")
    ] = None
    unhealthy_node_conditions: Annotated[
        Sequence[UnhealthyNodeCondition],
        Field("Any of these makes it unhealthy.", list_type="atomic", min_items=1, max_items=100),
    ] = ()
    unhealthy_machine_conditions: Annotated[
        Sequence[UnhealthyMachineCondition],
        Field("Any of these makes it unhealthy.", list_type="atomic", min_items=1, max_items=100),
    ] = ()


class RemediationTrigger(Part):
    """While more Machines than this are unhealthy, the fault lies elsewhere and nothing is done."""

    unhealthy_less_than_or_equal_to: Annotated[
        Percentage | None, Field('At most so many; a number or "40%"; all of them if unset.')
    ] = None
    unhealthy_in_range: Annotated[
        str,
        Field(
            'So many, as in "[3-5]"; overrides the other field.',
            min_length=1,
            max_length=32,
            pattern=r"^\[[0-9]+-[0-9]+\]$",
        ),
    ] = ""


class Remediation(Part):
    """What is done about unhealthy Machines. Without a template, their owner replaces them."""

    trigger_if: Annotated[RemediationTrigger, Field(min_properties=1)] = RemediationTrigger()
    template_ref: Annotated[
        TemplateReference | None, Field("What an external remediation is made from, one per unhealthy Machine.")
    ] = None


class MachineHealthCheckSpec(Part):
    """Which Machines, and how."""

    cluster_name: ClusterName = ""
    selector: Annotated[Selector, Field("Which Machines are watched.", required=True, map_type="atomic")] = Selector()
    checks: Annotated[HealthChecks, Field(min_properties=1)] = HealthChecks()
    remediation: Annotated[Remediation, Field(min_properties=1)] = Remediation()


class OldMachineHealthCheckStatus(Part):
    """What the v1beta1 API says in its status."""

    conditions: OldConditions = ()


class DeprecatedMachineHealthCheckStatus(Part):
    """Kept for readers of older APIs."""

    v1beta1: Annotated[OldMachineHealthCheckStatus | None, Field()] = None


class MachineHealthCheckStatus(Part):
    """What was found."""

    conditions: Conditions = ()
    expected_machines: Annotated[Amount | None, Field("How many Machines are watched.")] = None
    current_healthy: Annotated[Amount | None, Field("How many of them are healthy.")] = None
    remediations_allowed: Annotated[Amount | None, Field("How many more may become unhealthy.")] = None
    observed_generation: Generation = 0
    targets: Annotated[
        Sequence[str],
        Field(
            "The Machines that are watched.",
            list_type="atomic",
            max_items=10000,
            items=Field(min_length=1, max_length=253),
        ),
    ] = ()
    deprecated: Annotated[DeprecatedMachineHealthCheckStatus | None, Field()] = None


class MachineHealthCheck(Object):
    """When Machines count as unhealthy, and what is done about it."""

    spec: Annotated[MachineHealthCheckSpec, Field(required=True)] = MachineHealthCheckSpec()
    status: Annotated[MachineHealthCheckStatus, Field(min_properties=1)] = MachineHealthCheckStatus()


MACHINE_HEALTH_CHECK = Kind(names.API_VERSION, "MachineHealthCheck", "machinehealthchecks", MachineHealthCheck)
