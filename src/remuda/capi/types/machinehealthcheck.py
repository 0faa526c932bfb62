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
    """Condition of a Node, with the status and the duration that make it unhealthy."""

    type: Annotated[str, Field("Type of the Node's condition.", required=True, min_length=1)] = ""
    status: Annotated[str, Field("Status of the condition.", required=True, min_length=1)] = ""
    timeout_seconds: Annotated[
        Seconds, Field("Seconds for which the condition must have this status.", required=True)
    ] = 0


class UnhealthyMachineCondition(Part):
    """Condition of a Machine, with the status and the duration that make it unhealthy."""

    type: Annotated[
        ConditionType,
        Field(
            "Type of the Machine's condition.",
            required=True,
            rules=(
                Rule(
                    rule=f"!(self in [{','.join(repr(name) for name in DERIVED_CONDITIONS)}])",
                    message=f"type must not be one of: {', '.join(DERIVED_CONDITIONS)}",
                ),
            ),
        ),
    ] = ""
    status: Annotated[str, Field("Status of the condition.", required=True, enum=("True", "False", "Unknown"))] = ""
    timeout_seconds: Annotated[
        Seconds, Field("Seconds for which the condition must have this status.", required=True)
    ] = 0


class HealthChecks(Part):
    """Checks that make a Machine unhealthy if they fail."""

    node_startup_timeout_seconds: Annotated[
        Seconds | None, Field("Seconds within which a Machine must get a Node; 600 if unset, 0 for no limit.")
    ] = None
    unhealthy_node_conditions: Annotated[
        Sequence[UnhealthyNodeCondition],
        Field(
            "Conditions that make a Machine unhealthy; one is enough.", list_type="atomic", min_items=1, max_items=100
        ),
    ] = ()
    unhealthy_machine_conditions: Annotated[
        Sequence[UnhealthyMachineCondition],
        Field(
            "Conditions that make a Machine unhealthy; one is enough.", list_type="atomic", min_items=1, max_items=100
        ),
    ] = ()


class RemediationTrigger(Part):
    """Limits on the number of unhealthy Machines. Outside of them, no Machine is remediated."""

    unhealthy_less_than_or_equal_to: Annotated[
        Percentage | None,
        Field('Remediate only while at most this many are unhealthy; a number or "40%"; no limit if unset.'),
    ] = None
    unhealthy_in_range: Annotated[
        str,
        Field(
            'Remediate only while this many are unhealthy, for example "[3-5]"; overrides the other field.',
            min_length=1,
            max_length=32,
            pattern=r"^\[[0-9]+-[0-9]+\]$",
        ),
    ] = ""


class Remediation(Part):
    """Remediation of unhealthy Machines. Without a template, their owner replaces them."""

    trigger_if: Annotated[RemediationTrigger, Field(min_properties=1)] = RemediationTrigger()
    template_ref: Annotated[
        TemplateReference | None,
        Field("Template of the external remediation request, created for each unhealthy Machine."),
    ] = None


class MachineHealthCheckSpec(Part):
    """Selected Machines, their checks and their remediation."""

    cluster_name: ClusterName = ""
    selector: Annotated[Selector, Field("Labels of the Machines to check.", required=True, map_type="atomic")] = (
        Selector()
    )
    checks: Annotated[HealthChecks, Field(min_properties=1)] = HealthChecks()
    remediation: Annotated[Remediation, Field(min_properties=1)] = Remediation()


class OldMachineHealthCheckStatus(Part):
    """Status fields of the v1beta1 API."""

    conditions: OldConditions = ()


class DeprecatedMachineHealthCheckStatus(Part):
    """Deprecated status fields, for clients of older API versions."""

    v1beta1: Annotated[OldMachineHealthCheckStatus | None, Field()] = None


class MachineHealthCheckStatus(Part):
    """Results of the health checks."""

    conditions: Conditions = ()
    expected_machines: Annotated[Amount | None, Field("Number of checked Machines.")] = None
    current_healthy: Annotated[Amount | None, Field("Number of healthy Machines.")] = None
    remediations_allowed: Annotated[Amount | None, Field("Number of further Machines that may be remediated.")] = None
    observed_generation: Generation = 0
    targets: Annotated[
        Sequence[str],
        Field(
            "Names of the checked Machines.",
            list_type="atomic",
            max_items=10000,
            items=Field(min_length=1, max_length=253),
        ),
    ] = ()
    deprecated: Annotated[DeprecatedMachineHealthCheckStatus | None, Field()] = None


class MachineHealthCheck(Object):
    """Definition of unhealthy Machines and of their remediation."""

    spec: Annotated[MachineHealthCheckSpec, Field(required=True)] = MachineHealthCheckSpec()
    status: Annotated[MachineHealthCheckStatus, Field(min_properties=1)] = MachineHealthCheckStatus()


MACHINE_HEALTH_CHECK = Kind(names.API_VERSION, "MachineHealthCheck", "machinehealthchecks", MachineHealthCheck)
