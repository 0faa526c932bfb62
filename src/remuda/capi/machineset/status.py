"""Status of a MachineSet: counters and conditions, derived from its Machines alone, from scratch each time.

`observedGeneration` means that the counters were taken knowing the size desired by that generation, whether or not
Machines could be created: rolling updates wait for it, and a set that cannot create Machines must not stop a roll-back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.capi import conditions as maths
from remuda.capi.conditions import judged, late, reporter
from remuda.capi.machineset import members
from remuda.capi.types import Machine, MachineSet
from remuda.capi.types.shared import compiled_selector
from remuda.kube import conditions
from remuda.kube.conditions import condition
from remuda.kube.objects import Condition

Json = dict[str, Any]

_MOST_VERSIONS = 100  # limit of the schema


class ObservedMachineSet(msgspec.Struct, frozen=True, kw_only=True):
    machine_set: MachineSet
    machines: Sequence[Machine]
    now: float
    obstacles: Sequence[str] = ()  # why no Machines are created, until the user acts
    failed_checks: Sequence[str] = ()  # the same, until the control plane is stable


def publish(status: Json, seen: ObservedMachineSet) -> None:
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
        "readyReplicas": sum(map(members.is_ready, machines)),
        "availableReplicas": sum(map(members.is_available, machines)),
        "upToDateReplicas": sum(map(members.is_up_to_date, machines)),
        "versions": versions(machines),
    }


def versions(machines: Sequence[Machine]) -> list[Json]:
    """Return the number of Machines per version: the running version if known, else the desired one."""
    counted = Counter(found for machine in machines if (found := _version(machine)))
    return [{"version": one, "replicas": counted[one]} for one in sorted(counted)[:_MOST_VERSIONS]]


def _version(machine: Machine) -> str:
    info = machine.status.node_info
    return info.kubelet_version if info is not None and info.kubelet_version else machine.spec.version


def _put_selector(status: Json, machine_set: MachineSet) -> None:
    """For autoscalers; what makes no sense is left out."""
    text = str(compiled_selector(machine_set.spec.selector) or "")
    if text:
        status["selector"] = text
    else:
        status.pop("selector", None)


def all_conditions(seen: ObservedMachineSet) -> list[Condition]:
    reporters = [reporter(machine) for machine in seen.machines]
    return [
        scaling_up(seen),
        scaling_down(seen),
        maths.aggregate("MachinesReady", "Ready", reporters, when_empty="NoReplicas"),
        maths.aggregate("MachinesUpToDate", "UpToDate", judged(seen.machines, seen.now), when_empty="NoReplicas"),
        maths.remediating(reporters, by="MachineSet"),
        deleting(seen),
    ]


def scaling_up(seen: ObservedMachineSet) -> Condition:
    wanted, have = seen.machine_set.spec.replicas, len(seen.machines)
    if wanted is None:
        return condition("ScalingUp", "Unknown", "WaitingForReplicasSet", "Waiting for spec.replicas set")
    if seen.machine_set.metadata.deleting:
        wanted = 0
    why = [*seen.obstacles, *seen.failed_checks]
    if wanted <= have:
        note = _blocked("Scaling up would be blocked because", why) if why else ""
        return condition("ScalingUp", False, "NotScalingUp", note)
    text = f"Scaling up from {have} to {wanted} replicas"
    if why:
        text = _blocked(f"{text} is blocked because", why)
    return condition("ScalingUp", True, maths.SCALING_UP_BLOCKED if seen.obstacles else "ScalingUp", text)


def _blocked(beginning: str, obstacles: Sequence[str]) -> str:
    return "\n".join([f"{beginning}:", *(f"* {obstacle}" for obstacle in obstacles)])


def scaling_down(seen: ObservedMachineSet) -> Condition:
    wanted, have = seen.machine_set.spec.replicas, len(seen.machines)
    if wanted is None:
        return condition("ScalingDown", "Unknown", "WaitingForReplicasSet", "Waiting for spec.replicas set")
    if seen.machine_set.metadata.deleting:
        wanted = 0
    if have <= wanted:
        return condition("ScalingDown", False, "NotScalingDown")
    lines = [f"Scaling down from {have} to {wanted} replicas", *late(seen.machines, seen.now)]
    return condition("ScalingDown", True, "ScalingDown", "\n".join(lines))


def deleting(seen: ObservedMachineSet) -> Condition:
    if not seen.machine_set.metadata.deleting:
        return condition("Deleting", False, "NotDeleting")
    if not seen.machines:
        return condition("Deleting", True, "DeletionCompleted", "Deletion completed")
    count = len(seen.machines)
    text = f"Deleting {count} {'Machine' if count == 1 else 'Machines'}"
    return condition("Deleting", True, "Deleting", "\n".join([text, *late(seen.machines, seen.now)]))
