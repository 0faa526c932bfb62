"""Choice of the Machines to delete when a MachineSet has too many.

The choice is a pure function of the Machines, and the deletion itself is its record: a Machine being deleted is always
chosen first, so a retry, after a crash or by a second reconcile, never selects another one. Machines that are not
available are deleted before available ones; rolling updates rely on it (`machinedeployment.rollout`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from remuda.capi import names
from remuda.capi.machineset import health
from remuda.capi.types import Machine
from remuda.kube import clock


class Rank(IntEnum):
    """Order of deletion of a Machine, the strongest reason first."""

    DELETING = 0
    MARKED = 1  # the user's or an autoscaler's choice
    UPDATING = 2
    UNHEALTHY = 3
    UNAVAILABLE = 4
    GOOD = 5


def rank(machine: Machine) -> Rank:
    if machine.metadata.deleting:
        return Rank.DELETING
    if names.DELETE_MACHINE in machine.metadata.annotations:
        return Rank.MARKED
    if names.UPDATE_IN_PROGRESS in machine.metadata.annotations:
        return Rank.UPDATING
    if not health.is_healthy(machine):
        return Rank.UNHEALTHY
    return Rank.GOOD if health.is_available(machine) else Rank.UNAVAILABLE


def choose(machines: Sequence[Machine], count: int, order: str) -> list[Machine]:
    """The first `count` to go. `order` (Oldest, Newest, Random) decides within a rank, the name where that does not."""
    sign = {"Oldest": 1, "Newest": -1}.get(order, 0)

    def place(machine: Machine) -> tuple[Rank, float, str]:
        return rank(machine), sign * _created(machine), machine.metadata.name

    return sorted(machines, key=place)[: max(count, 0)]


def _created(machine: Machine) -> float:
    created = machine.metadata.creation_timestamp
    return clock.parse(created) if created else 0.0
