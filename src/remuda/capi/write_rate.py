"""Rate limit for status writes: a state that the next event replaces within moments is not worth a write.

A fleet that starts passes through millions of such states. Important changes are never delayed: the caller marks them,
and they are written at once. Delayed changes are written when the interval is over, so a state that lasts is always
reported. The interval grows with the controller's backlog, up to a limit: work comes before reporting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from remuda.kube import clock
from remuda.kube.client import Client
from remuda.kube.objects import Key, ObjectMeta
from remuda.runtime.draft import Draft, save
from remuda.runtime.outcome import DONE, Outcome, Requeue
from remuda.runtime.steps import Step

STATUS_SECONDS = 5.0  # a state that lasts this long is written
_BUSY_SECONDS = 30.0  # the same with any backlog
_BACKLOG = 20  # each 20 waiting keys lengthen the interval by its base value


class WriteRate:
    """Write rate of one controller's objects; stores one number per object."""

    def __init__(self, seconds: float, backlog: Callable[[], int] = lambda: 0) -> None:
        self._least = seconds
        self._backlog = backlog
        self._written: dict[Key, float] = {}

    @property
    def _seconds(self) -> float:
        return max(self._least, min(_BUSY_SECONDS, self._least * (1 + self._backlog() / _BACKLOG)))

    async def save(self, client: Client, draft: Draft, metadata: ObjectMeta, step: Step, *, matters: bool) -> Outcome:
        """Save a draft, without its status if that may wait; then return an outcome with the delay."""
        now = clock.time()
        rest = 0.0 if matters else self.rest(metadata, now)
        if rest:
            # Only the status may wait: metadata and spec of the draft are still written now.
            draft.obj["status"] = draft.base.get("status", {})
        if await save(client, draft, step) is not draft.value:
            self._written[metadata.key] = now
        return Requeue(rest, "the rate limit delays a write of the status") if rest else DONE

    def rest(self, metadata: ObjectMeta, now: float) -> float:
        """For how many seconds more the status of this object may be held back. Making it counts as a write."""
        made, seconds = metadata.creation_timestamp, self._seconds
        last = self._written.get(metadata.key, clock.parse(made) if made else now - seconds)
        return min(seconds, max(0.0, last + seconds - now))

    def wrote(self, key: Key, now: float) -> None:
        self._written[key] = now

    def forget(self, key: Key) -> None:
        self._written.pop(key, None)


def matters(draft: Draft, conditions: Iterable[str]) -> bool:
    """Return whether others wait for this status: a change of `initialization`, or of a phase, generation or one of
    these conditions that was reported before. A first status in which nothing has happened yet does not matter."""
    before, after = draft.base.get("status", {}), draft.status
    if before.get("initialization") != after.get("initialization"):
        return True
    if any(name in before and before[name] != after.get(name) for name in ("phase", "observedGeneration")):
        return True
    was, now = _statuses(before), _statuses(after)
    return any(type in was and was[type] != now.get(type) for type in conditions)


def _statuses(status: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
