"""How often an object on its way is written: states that the next event replaces within moments are not worth a write.

A fleet that starts passes through millions of them. What matters is never held back: the caller says so, and writes at
once. What is held back is written when the time is over, so a state that lasts is always told.
"""

from __future__ import annotations

from remuda.kube import clock
from remuda.kube.objects import Key, ObjectMeta


class Pace:
    """Of one controller's objects; keeps one number for each of them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._written: dict[Key, float] = {}

    def rest(self, metadata: ObjectMeta, now: float) -> float:
        """For how many seconds more the status of this object may be held back. Making it counts as a write."""
        made = metadata.creation_timestamp
        last = self._written.get(metadata.key, clock.parse(made) if made else now - self._seconds)
        return min(self._seconds, max(0.0, last + self._seconds - now))

    def wrote(self, key: Key, now: float) -> None:
        self._written[key] = now

    def forget(self, key: Key) -> None:
        self._written.pop(key, None)
