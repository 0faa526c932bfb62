"""Status of a control plane, from the Machines that were found. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from remuda.capi import contract, names, versions
from remuda.capi.contract import ProviderObject
from remuda.capi.types import Machine
from remuda.kube import conditions
from remuda.kube.conditions import condition
from remuda.kube.objects import Condition
from remuda.lab.simulator.providers import common
from remuda.lab.simulator.providers.controlplane_machines import UP_TO_DATE, DesiredControlPlane
from remuda.lab.simulator.providers.rollout import (
    ControlPlaneMachine,
    CreateMachine,
    Decision,
    DeleteMachine,
    WaitForMachine,
)
from remuda.runtime.draft import Draft


def put(
    draft: Draft,
    obj: ProviderObject,
    wanted: DesiredControlPlane,
    machines: Sequence[Machine],
    members: Sequence[ControlPlaneMachine],
    initialized: bool,
    decision: Decision,
) -> None:
    status = draft.status
    if initialized:
        common.put(draft.obj, contract.initialized_path(obj), True)
    status["selector"] = f"{names.CLUSTER_NAME},{names.CONTROL_PLANE_NAME}={names.label_value(obj.key.name)}"
    status["replicas"] = len(machines)
    status["readyReplicas"] = _count(machines, "Ready")
    available = _count(machines, "Available")
    up_to_date = _count(machines, UP_TO_DATE)
    running = running_versions(machines, members)
    if obj.old:
        status["ready"] = initialized
        status["updatedReplicas"] = up_to_date
        status["unavailableReplicas"] = max(0, wanted.replicas - available)
        if running:
            status["version"] = running[0][0]
    else:
        status["availableReplicas"] = available
        status["upToDateReplicas"] = up_to_date
        if running:
            status["versions"] = [{"version": version, "replicas": count} for version, count in running]
    common.report(draft, obj, *_conditions(wanted, machines, members, initialized, decision))


def running_versions(machines: Sequence[Machine], members: Sequence[ControlPlaneMachine]) -> list[tuple[str, int]]:
    """Return how many Machines run each version, the oldest first. Only a running Machine counts: one with a Node."""
    running = {member.name for member in members if member.settled}
    counts = Counter(machine.spec.version for machine in machines if machine.metadata.name in running)
    return sorted(counts.items(), key=lambda item: versions.semantic(item[0]))


def _count(machines: Sequence[Machine], type: str) -> int:
    return sum(conditions.is_true(machine.status.conditions, type) for machine in machines)


def _conditions(
    wanted: DesiredControlPlane,
    machines: Sequence[Machine],
    members: Sequence[ControlPlaneMachine],
    initialized: bool,
    decision: Decision,
) -> list[Condition]:
    why = decision.why if isinstance(decision, CreateMachine | DeleteMachine | WaitForMachine) else ""
    outdated = sum(not member.up_to_date for member in members)
    return [
        _available(members, initialized),
        condition("RollingOut", bool(outdated), "RollingOut" if outdated else "NotRollingOut", why if outdated else ""),
        _scaling("ScalingUp", len(machines) < wanted.replicas, why),
        _scaling("ScalingDown", len(machines) > wanted.replicas and not outdated, why),
    ]


def _available(members: Sequence[ControlPlaneMachine], initialized: bool) -> Condition:
    if not initialized:
        return condition("Available", False, "NotInitialized", "no server has become a Node of the control plane yet")
    if any(member.settled for member in members):
        return condition("Available", True, "Available")
    return condition("Available", False, "NoMembers", "no member of the control plane is settled")


def _scaling(type: str, on: bool, why: str) -> Condition:
    return condition(type, on, type if on else f"Not{type}", why if on else "")
