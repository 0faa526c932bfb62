"""Next size of each MachineSet of a MachineDeployment: pure functions, numbers in, numbers out.

Two bounds hold at every moment of a rolling update, whatever becomes of single Machines meanwhile: never more Machines
than the *ceiling* (replicas + maxSurge; one that is still being deleted counts), and no available one is deleted
while fewer than the *floor* (replicas - maxUnavailable) would remain. Three facts make that provable from the counters
of the MachineSets alone:

- A set only ever moves from what exists towards the desired size, so it never holds more than `held`.
- A set deletes unavailable Machines before available ones (`machineset.members`), so of its available Machines at least
  `kept` outlive every removal ordered so far. (A Machine marked with the delete-machine annotation is deleted before
  all others, available or not: that choice, and the gap it leaves, is the user's.)
- Both follow from counters only if these were taken after the set saw the size it has now. A set that has not reported
  on its latest size could still hold what an earlier size allowed, so nothing is planned until it has.

Nobody decides that a Machine fails: failures lower the number of available Machines, and thereby stop removals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from remuda.capi import amounts
from remuda.capi.types import RolloutStrategy


class MachineSetCounts(msgspec.Struct, frozen=True):
    """MachineSet, with the numbers that matter for a plan."""

    name: str
    wanted: int
    existing: int = 0  # including Machines that are being deleted
    available: int = 0  # without Machines that are being deleted
    reported: bool = True  # the two numbers above are of the current `wanted`
    sized_for: int | None = None  # replicas of the MachineDeployment when `wanted` was last set

    @property
    def held(self) -> int:
        """Return the maximum number of Machines until the next order."""
        return max(self.wanted, self.existing)

    @property
    def kept(self) -> int:
        """Return the available Machines that no order so far removes."""
        return min(self.available, self.wanted)


class RolloutLimits(msgspec.Struct, frozen=True):
    replicas: int
    surge: int = 0
    unavailable: int = 0

    @property
    def ceiling(self) -> int:
        return self.replicas + self.surge

    @property
    def floor(self) -> int:
        return max(self.replicas - self.unavailable, 0)


class RolloutPlan(msgspec.Struct, frozen=True):
    sizes: Mapping[str, int]  # of every set in the plan, also of unchanged ones
    waiting: str = ""  # what the rollout waits for, as a message
    held: bool = False  # nothing was decided, and the sizes are unchanged


def limits(replicas: int, strategy: RolloutStrategy) -> RolloutLimits:
    """Return the strategy in numbers. If both are 0, no step would be possible, so one Machine may be missing."""
    if strategy.type != "RollingUpdate":
        return RolloutLimits(replicas)
    surge = amounts.resolve(strategy.rolling_update.max_surge, replicas, up=True)
    unavailable = amounts.resolve(strategy.rolling_update.max_unavailable, replicas, up=False)
    return RolloutLimits(replicas, surge, unavailable if surge or unavailable else 1)


def rolling(new: MachineSetCounts, old: Sequence[MachineSetCounts], limits: RolloutLimits) -> RolloutPlan:
    """Return the next step of a rolling update. `old`: oldest first."""
    if held := _unreported(new, *old):
        return held
    size = _size_of_new(new, old, limits.ceiling, limits.replicas)
    # Assume that every old Machine may soon be available again, so that a temporary failure of all of them costs none.
    budget = sum(one.wanted for one in old) + min(new.available, size) - limits.floor
    sizes = {new.name: size, **_shrunk(old, budget)}
    return RolloutPlan(sizes, _rolling_waits(new, old, sizes, limits))


def on_delete(new: MachineSetCounts, old: Sequence[MachineSetCounts], limits: RolloutLimits) -> RolloutPlan:
    """Return the next step of OnDelete: users delete old Machines, and the new set replaces them afterwards."""
    if held := _unreported(new, *old):
        return held
    size = _size_of_new(new, old, limits.replicas, limits.replicas)
    left = [msgspec.structs.replace(one, wanted=min(one.wanted, one.existing)) for one in old]
    excess = size + sum(one.wanted for one in left) - limits.replicas
    sizes = {new.name: size, **_shrunk(left, excess)}
    remaining = sum(sizes[one.name] for one in old)
    waiting = f"waiting for the user to delete {_machines(remaining)} of earlier revisions" if remaining else ""
    return RolloutPlan(sizes, waiting)


def proportional(sets: Sequence[MachineSetCounts], limits: RolloutLimits) -> RolloutPlan:
    """Resize a paused rollout without advancing it: each revision keeps its share. `sets`: newest first.

    Sets that are sized for the current number of replicas already have their share, so an interrupted resize is
    completed, and a completed one is not repeated.
    """
    sizes = {one.name: one.wanted for one in sets}
    active = [one for one in sets if one.wanted > 0] or list(sets[:1])
    if len(active) == 1:
        sizes[active[0].name] = limits.replicas
    elif pending := [one for one in active if one.sized_for != limits.replicas]:
        total = limits.ceiling if limits.replicas else 0
        room = total - sum(one.wanted for one in active if one.sized_for == limits.replicas)
        sizes.update(_shares(pending, max(room, 0)))
    return RolloutPlan(sizes, "the rollout is paused")


def _unreported(*sets: MachineSetCounts) -> RolloutPlan | None:
    silent = [one.name for one in sets if not one.reported]
    if not silent:
        return None
    noun, verb = ("MachineSet", "has") if len(silent) == 1 else ("MachineSets", "have")
    waiting = f"{noun} {', '.join(silent)} {verb} not observed the latest spec.replicas yet"
    return RolloutPlan({one.name: one.wanted for one in sets}, waiting, held=True)


def _size_of_new(new: MachineSetCounts, old: Sequence[MachineSetCounts], ceiling: int, replicas: int) -> int:
    """Return the size of the new set: it grows up to the ceiling. Above the ceiling (the user lowered it), missing
    Machines are not created. Existing Machines that were to be deleted stay, because that needs no creation.
    """
    room = ceiling - new.held - sum(one.held for one in old)
    unmade = max(new.wanted - new.existing, 0)
    return min(max(new.wanted + max(room, -unmade), new.available), replicas)


def _shrunk(old: Sequence[MachineSetCounts], budget: int) -> dict[str, int]:
    """Return the sizes after removing up to `budget`: first unavailable Machines of any set, then Machines of the
    oldest sets.
    """
    sizes = {one.name: one.wanted for one in old}
    for only_unavailable in (True, False):
        for one in old:
            spare = sizes[one.name] - (one.kept if only_unavailable else 0)
            taken = max(min(spare, budget), 0)
            sizes[one.name] -= taken
            budget -= taken
    return sizes


def _shares(sets: Sequence[MachineSetCounts], room: int) -> dict[str, int]:
    """Split the room in proportion to the current sizes; rounding favours the largest remainders."""
    total = sum(one.wanted for one in sets)
    sizes = {one.name: one.wanted * room // total for one in sets}
    by_remainder = sorted(sets, key=lambda one: -(one.wanted * room % total))
    for one in by_remainder[: room - sum(sizes.values())]:
        sizes[one.name] += 1
    return sizes


def _rolling_waits(
    new: MachineSetCounts, old: Sequence[MachineSetCounts], sizes: Mapping[str, int], limits: RolloutLimits
) -> str:
    """Return what must happen before the next step, unless this step is already in progress."""
    if any(sizes[one.name] != one.wanted for one in (new, *old)):
        return ""
    missing = new.wanted - new.available
    if missing > 0 and any(one.wanted for one in old):
        return (
            f"waiting for {_machines(missing)} of MachineSet {new.name} to become available before old ones are deleted"
        )
    leaving = sum(max(one.existing - one.wanted, 0) for one in (new, *old))
    if leaving:
        return f"waiting for {_machines(leaving)} to be deleted (at most {limits.ceiling} may exist)"
    return ""


def _machines(count: int) -> str:
    return f"{count} Machine" if count == 1 else f"{count} Machines"
