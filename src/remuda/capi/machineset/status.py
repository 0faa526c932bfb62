"""What a MachineSet says of itself: counters and conditions, derived from its Machines alone, from scratch each time.

`observedGeneration` means that the counters were taken knowing the size wanted by that generation, whether or not
Machines could be made: rolling updates wait for it, and one that cannot make Machines must not stop a roll-back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.capi import conditions as maths
from remuda.capi import selecting
from remuda.capi.conditions import Reporter
from remuda.capi.machineset import health
from remuda.capi.types import Machine, MachineSet
from remuda.kube import clock, conditions
from remuda.kube.conditions import condition
from remuda.kube.objects import Condition

Json = dict[str, Any]

_SETTLING_SECONDS = 10.0  # a Machine just made has not been judged up to date or not
_LONG_SECONDS = 15 * 60.0
_MOST_VERSIONS = 100


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    machine_set: MachineSet
    machines: Sequence[Machine]
    now: float
    obstacles: Sequence[str] = ()  # why no Machines are made


def publish(status: Json, seen: Observed) -> None:
    """Writes all of it into the raw status."""
    generation = seen.machine_set.metadata.generation
    status.update(counters(seen.machines))
    _put_selector(status, seen.machine_set)
    conditions.put(status, all_conditions(seen), generation=generation)
    if generation:
        status["observedGeneration"] = generation


def counters(machines: Sequence[Machine]) -> Json:
    return {
        "replicas": len(machines),
        "readyReplicas": sum(map(health.is_ready, machines)),
        "availableReplicas": sum(map(health.is_available, machines)),
        "upToDateReplicas": sum(map(health.is_up_to_date, machines)),
        "versions": versions(machines),
    }


def versions(machines: Sequence[Machine]) -> list[Json]:
    """What runs, where that is known, else what shall run."""
    counted = Counter(found for machine in machines if (found := _version(machine)))
    return [{"version": one, "replicas": counted[one]} for one in sorted(counted)[:_MOST_VERSIONS]]


def _version(machine: Machine) -> str:
    info = machine.status.node_info
    return info.kubelet_version if info is not None and info.kubelet_version else machine.spec.version


def _put_selector(status: Json, machine_set: MachineSet) -> None:
    """For autoscalers; what makes no sense is left out."""
    text = str(selecting.compiled(machine_set.spec.selector) or "")
    if text:
        status["selector"] = text
    else:
        status.pop("selector", None)


def all_conditions(seen: Observed) -> list[Condition]:
    reporters = [reporter(machine) for machine in seen.machines]
    return [
        scaling_up(seen),
        scaling_down(seen),
        maths.aggregate("MachinesReady", "Ready", reporters, nobody="NoReplicas"),
        maths.aggregate("MachinesUpToDate", "UpToDate", judged(seen.machines, seen.now), nobody="NoReplicas"),
        maths.remediating(reporters, by="MachineSet"),
        deleting(seen),
    ]


def reporter(machine: Machine) -> Reporter:
    return Reporter("Machine", machine.metadata.name, machine.status.conditions, machine.is_control_plane)


def judged(machines: Sequence[Machine], now: float) -> list[Reporter]:
    """Machines of which it is known, or should be by now, whether they are up to date."""
    return [
        reporter(machine)
        for machine in machines
        if conditions.find(machine.status.conditions, "UpToDate") is not None
        or _age(machine.metadata.creation_timestamp, now) > _SETTLING_SECONDS
    ]


def scaling_up(seen: Observed) -> Condition:
    wanted, have = seen.machine_set.spec.replicas, len(seen.machines)
    if wanted is None:
        return condition("ScalingUp", "Unknown", "WaitingForReplicasSet", "Waiting for spec.replicas set")
    if seen.machine_set.metadata.deleting:
        wanted = 0
    if wanted <= have:
        note = _blocked("Scaling up would be blocked because", seen.obstacles) if seen.obstacles else ""
        return condition("ScalingUp", False, "NotScalingUp", note)
    text = f"Scaling up from {have} to {wanted} replicas"
    if seen.obstacles:
        text = _blocked(f"{text} is blocked because", seen.obstacles)
    return condition("ScalingUp", True, "ScalingUp", text)


def _blocked(beginning: str, obstacles: Sequence[str]) -> str:
    return "\n".join([f"{beginning}:", *(f"* {obstacle}" for obstacle in obstacles)])


def scaling_down(seen: Observed) -> Condition:
    wanted, have = seen.machine_set.spec.replicas, len(seen.machines)
    if wanted is None:
        return condition("ScalingDown", "Unknown", "WaitingForReplicasSet", "Waiting for spec.replicas set")
    if seen.machine_set.metadata.deleting:
        wanted = 0
    if have <= wanted:
        return condition("ScalingDown", False, "NotScalingDown")
    lines = [f"Scaling down from {have} to {wanted} replicas", *late(seen.machines, seen.now)]
    return condition("ScalingDown", True, "ScalingDown", "\n".join(lines))


def late(machines: Sequence[Machine], now: float) -> list[str]:
    """A line about Machines whose deletion takes long, which somebody should look at."""
    found = [m.metadata.name for m in machines if _age(m.metadata.deletion_timestamp, now) > _LONG_SECONDS]
    if not found:
        return []
    shown = ", ".join(found[:3]) + (f", ... ({len(found) - 3} more)" if len(found) > 3 else "")
    noun, verb = ("Machine", "is") if len(found) == 1 else ("Machines", "are")
    return [f"* {noun} {shown} {verb} in deletion since more than 15m"]


def becomes_late_at(machines: Sequence[Machine], now: float) -> float | None:
    """When `late` will have more to say."""
    moments = [clock.parse(m.metadata.deletion_timestamp) for m in machines if m.metadata.deletion_timestamp]
    due = [moment + _LONG_SECONDS + 1 for moment in moments]
    return min((moment for moment in due if moment > now), default=None)


def deleting(seen: Observed) -> Condition:
    if not seen.machine_set.metadata.deleting:
        return condition("Deleting", False, "NotDeleting")
    if not seen.machines:
        return condition("Deleting", True, "DeletionCompleted", "Deletion completed")
    count = len(seen.machines)
    text = f"Deleting {count} {'Machine' if count == 1 else 'Machines'}"
    return condition("Deleting", True, "Deleting", "\n".join([text, *late(seen.machines, seen.now)]))


def _age(moment: str | None, now: float) -> float:
    return now - clock.parse(moment) if moment else 0.0
