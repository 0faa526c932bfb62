"""Status of a MachineDeployment, derived from its MachineSets and their Machines from scratch each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.capi import conditions as maths
from remuda.capi.conditions import judged, late, reporter
from remuda.capi.machinedeployment.rollout import RolloutLimits
from remuda.capi.types import Machine, MachineDeployment, MachineSet
from remuda.capi.types.shared import compiled_selector
from remuda.kube import conditions
from remuda.kube.conditions import condition
from remuda.kube.objects import Condition

Json = dict[str, Any]

_MOST_VERSIONS = 100
_MOST_REASONS = 3


class ObservedMachineDeployment(msgspec.Struct, frozen=True, kw_only=True):
    deployment: MachineDeployment
    new: MachineSet | None
    sets: Sequence[MachineSet]
    machines: Sequence[Machine]
    limits: RolloutLimits | None  # None while spec.replicas is not set
    now: float
    obstacles: Sequence[str] = ()
    waiting: str = ""


def publish(status: Json, seen: ObservedMachineDeployment) -> None:
    """Write the whole status into the raw one."""
    generation = seen.deployment.metadata.generation
    status.update(counters(seen))
    _put_selector(status, seen.deployment)
    conditions.put(status, all_conditions(seen), generation=generation)
    status["phase"] = phase(seen)
    if generation:
        status["observedGeneration"] = generation


def counters(seen: ObservedMachineDeployment) -> Json:
    states = [one.status for one in seen.sets]
    return {
        "replicas": sum(state.replicas or 0 for state in states),
        "readyReplicas": sum(state.ready_replicas or 0 for state in states),
        "availableReplicas": sum(state.available_replicas or 0 for state in states),
        "upToDateReplicas": (seen.new.status.replicas or 0) if seen.new is not None else 0,
        "versions": _versions(seen.sets),
    }


def _versions(sets: Sequence[MachineSet]) -> list[Json]:
    counted: Counter[str] = Counter()
    for one in sets:
        for found in one.status.versions:
            counted[found.version] += found.replicas
    return [{"version": one, "replicas": counted[one]} for one in sorted(counted)[:_MOST_VERSIONS]]


def _put_selector(status: Json, deployment: MachineDeployment) -> None:
    """Write the selector for autoscalers; omit an invalid one."""
    text = str(compiled_selector(deployment.spec.selector) or "")
    if text:
        status["selector"] = text
    else:
        status.pop("selector", None)


def phase(seen: ObservedMachineDeployment) -> str:
    """Return a one-word summary of the conditions, for people and columns."""
    if seen.limits is None:
        return "Unknown"
    have = sum(one.status.replicas or 0 for one in seen.sets)
    wanted = 0 if seen.deployment.metadata.deleting else seen.limits.replicas
    return "ScalingUp" if have < wanted else "ScalingDown" if have > wanted else "Running"


def all_conditions(seen: ObservedMachineDeployment) -> list[Condition]:
    reporters = [reporter(machine) for machine in seen.machines]
    return [
        available(seen),
        maths.aggregate("MachinesReady", "Ready", reporters, when_empty="NoReplicas"),
        maths.aggregate("MachinesUpToDate", "UpToDate", judged(seen.machines, seen.now), when_empty="NoReplicas"),
        rolling_out(seen),
        scaling_up(seen),
        scaling_down(seen),
        maths.remediating(reporters, by="MachineDeployment/MachineSet"),
        deleting(seen),
    ]


def available(seen: ObservedMachineDeployment) -> Condition:
    if seen.limits is None:
        return condition("Available", "Unknown", "WaitingForReplicasSet", "Waiting for spec.replicas set")
    have = sum(one.status.available_replicas or 0 for one in seen.sets)
    if have >= seen.limits.floor:
        return condition("Available", True, "Available")
    text = f"{have} available replicas, at least {seen.limits.floor} required"
    if seen.limits.unavailable:
        text += f" (maxUnavailable is {seen.limits.unavailable}, spec.replicas is {seen.limits.replicas})"
    if seen.deployment.metadata.deleting:
        text = "Deletion in progress"
    return condition("Available", False, "NotAvailable", text)


def rolling_out(seen: ObservedMachineDeployment) -> Condition:
    """Return RollingOut: True while Machines are not up to date; the message has the reasons and the next wait."""
    outdated = [
        found
        for machine in seen.machines
        if (found := conditions.find(machine.status.conditions, "UpToDate")) is not None and found.status == "False"
    ]
    if not outdated:
        return condition("RollingOut", False, "NotRollingOut", seen.waiting)
    lines = [f"Rolling out {len(outdated)} not up-to-date replicas"]
    reasons = Counter(line for found in outdated for line in found.message.split("\n") if line.strip())
    lines += [_bullet(reason) for reason, _ in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))][
        :_MOST_REASONS
    ]
    if seen.waiting:
        lines.append(_bullet(seen.waiting[:1].upper() + seen.waiting[1:]))
    return condition("RollingOut", True, "RollingOut", "\n".join(lines))


def _bullet(text: str) -> str:
    return text if text.lstrip().startswith("* ") else f"* {text}"


def scaling_up(seen: ObservedMachineDeployment) -> Condition:
    if seen.limits is None:
        return condition("ScalingUp", "Unknown", "WaitingForReplicasSet", "Waiting for spec.replicas set")
    have = sum(one.status.replicas or 0 for one in seen.sets)
    wanted = 0 if seen.deployment.metadata.deleting else seen.limits.replicas
    growing = _growing(seen.sets)
    obstacles = list(dict.fromkeys([*seen.obstacles, *_obstacles_of(growing)]))
    if have >= wanted:
        text = "\n".join(["Scaling up would be blocked because:", *map(_bullet, obstacles)]) if obstacles else ""
        return condition("ScalingUp", False, "NotScalingUp", text)
    text = f"Scaling up from {have} to {wanted} replicas"
    if obstacles:
        text = "\n".join([f"{text} is blocked because:", *map(_bullet, obstacles)])
    blocked = bool(seen.obstacles) or any(one.reason == maths.SCALING_UP_BLOCKED for one in growing)
    return condition("ScalingUp", True, maths.SCALING_UP_BLOCKED if blocked else "ScalingUp", text)


def _growing(sets: Sequence[MachineSet]) -> list[Condition]:
    """Return ScalingUp of the sets that ought to grow."""
    found = (conditions.find(one.status.conditions, "ScalingUp") for one in sets)
    return [one for one in found if one is not None and one.status == "True"]


def _obstacles_of(growing: Sequence[Condition]) -> list[str]:
    """Return the obstacles that the sets report, in their words."""
    return [line[2:] for one in growing for line in one.message.split("\n") if line.startswith("* ")]


def scaling_down(seen: ObservedMachineDeployment) -> Condition:
    if seen.limits is None:
        return condition("ScalingDown", "Unknown", "WaitingForReplicasSet", "Waiting for spec.replicas set")
    have = sum(one.status.replicas or 0 for one in seen.sets)
    wanted = 0 if seen.deployment.metadata.deleting else seen.limits.replicas
    if have <= wanted:
        return condition("ScalingDown", False, "NotScalingDown")
    lines = [f"Scaling down from {have} to {wanted} replicas", *late(seen.machines, seen.now)]
    return condition("ScalingDown", True, "ScalingDown", "\n".join(lines))


def deleting(seen: ObservedMachineDeployment) -> Condition:
    if not seen.deployment.metadata.deleting:
        return condition("Deleting", False, "NotDeleting")
    if not seen.sets:
        return condition("Deleting", True, "DeletionCompleted", "Deletion completed")
    if not seen.machines:
        text = "Deleting MachineSets " + ", ".join(one.metadata.name for one in seen.sets)
        return condition("Deleting", True, "Deleting", text)
    count = len(seen.machines)
    text = f"Deleting {count} {'Machine' if count == 1 else 'Machines'}"
    return condition("Deleting", True, "Deleting", "\n".join([text, *late(seen.machines, seen.now)]))
