"""Remediation by a MachineSet: the Machines with a failed health check to delete now, and the conditions of the others.

A MachineHealthCheck hands a Machine over by setting OwnerRemediated to False. To remediate it, the set only deletes it,
and then creates another. The condition is written before the deletion, so that remediations in flight can be counted. A
rollout is never disturbed: the rollout itself replaces Machines of an earlier revision, in its order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from remuda.capi import amounts, names
from remuda.capi.types import Machine, MachineDeployment
from remuda.kube import clock, conditions
from remuda.kube.conditions import condition
from remuda.kube.objects import Condition

OWNER_REMEDIATED = "OwnerRemediated"
MACHINE_DELETING = "MachineDeleting"


class Remedy(msgspec.Struct, frozen=True):
    """Conditions to write, by Machine (None removes the condition), and the Machines to delete after that."""

    conditions: Mapping[str, Condition | None]
    delete: Sequence[Machine] = ()
    in_flight: int = 0


def plan(machines: Sequence[Machine], *, limit: int | None, outdated: bool, obstacles: Sequence[str] = ()) -> Remedy:
    """`limit`: so many at once, None: all. `outdated`: a newer revision exists. `obstacles`: why none can be made."""
    verdicts: dict[str, Condition | None] = {m.metadata.name: None for m in machines if _recovered(m)}
    waiting = sorted((m for m in machines if is_candidate(m)), key=_place)
    in_flight = sum(_is_in_flight(m) for m in machines)
    if outdated:
        verdicts |= {m.metadata.name: _CANNOT for m in waiting}
        return Remedy(verdicts, in_flight=in_flight)
    if obstacles:
        deferred = _deferred("preflight checks failed: " + "; ".join(obstacles))
        return Remedy(verdicts | {m.metadata.name: deferred for m in waiting}, in_flight=in_flight)
    room = len(waiting) if limit is None else max(limit - in_flight, 0)
    chosen, rest = waiting[:room], waiting[room:]
    verdicts |= {m.metadata.name: _DELETING for m in chosen}
    if rest:
        late = _deferred(
            f"{in_flight + len(chosen)} Machines are being remediated, at most {limit} at a time are allowed"
        )
        verdicts |= {m.metadata.name: late for m in rest}
    return Remedy(verdicts, chosen, in_flight + len(chosen))


def limit_of(deployment: MachineDeployment | None) -> int | None:
    """`maxInFlight` in Machines. A part of the replicas is rounded up, so a percentage never means none."""
    if deployment is None or deployment.spec.remediation.max_in_flight is None:
        return None
    replicas = deployment.spec.replicas
    return amounts.resolve(deployment.spec.remediation.max_in_flight, 1 if replicas is None else replicas, up=True)


def is_candidate(machine: Machine) -> bool:
    """Handed over by a health check, and still there."""
    return not machine.metadata.deleting and _failed(machine) and _handed_over(machine)


def _failed(machine: Machine) -> bool:
    return conditions.is_false(machine.status.conditions, "HealthCheckSucceeded")


def _handed_over(machine: Machine) -> bool:
    return conditions.is_false(machine.status.conditions, OWNER_REMEDIATED)


def _recovered(machine: Machine) -> bool:
    """Healthy again before anything was done about it. One that is being deleted stays marked until it is gone."""
    handed = conditions.find(machine.status.conditions, OWNER_REMEDIATED)
    succeeded = conditions.is_true(machine.status.conditions, "HealthCheckSucceeded")
    return handed is not None and succeeded and not machine.metadata.deleting


def _is_in_flight(machine: Machine) -> bool:
    handed = conditions.find(machine.status.conditions, OWNER_REMEDIATED)
    return machine.metadata.deleting and handed is not None and handed.reason == MACHINE_DELETING


def _place(machine: Machine) -> tuple[bool, bool, float, str]:
    """One whose deletion was announced before a crash first; then those asked for by hand; then the newest."""
    handed = conditions.find(machine.status.conditions, OWNER_REMEDIATED)
    announced = handed is not None and handed.reason == MACHINE_DELETING
    by_hand = names.REMEDIATE_MACHINE in machine.metadata.annotations
    created = machine.metadata.creation_timestamp
    return not announced, not by_hand, -clock.parse(created) if created else 0.0, machine.metadata.name


def _deferred(why: str) -> Condition:
    return condition(OWNER_REMEDIATED, False, "RemediationDeferred", f"Remediation deferred: {why}")


_DELETING = condition(OWNER_REMEDIATED, False, MACHINE_DELETING, "Machine is being deleted because it is unhealthy")
_CANNOT = condition(
    OWNER_REMEDIATED,
    False,
    "CannotBeRemediated",
    "Machine is of an earlier revision of its MachineDeployment: the rollout replaces it",
)
