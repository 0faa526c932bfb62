"""Recent committed changes in memory, from which watches resume and older lists are rebuilt.

The history has no gaps: it contains every change after `floor` and none up to `floor`. It is limited by count and by
bytes, and always keeps the newest change. The log on disk follows `floor`, so the limits apply to the file too. An
event counts with the larger of its two states, which limits both: memory holds the replaced states, the log the new
ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from remuda.apiserver.storage.types import Revision, StoreEntry, StoreEvent

DEFAULT_EVENTS = 20_000
DEFAULT_BYTES = 32 << 20

# Overhead per event, so that a flood of tiny objects is limited too.
_OVERHEAD = 400

# Number of newest events that keep their wire encodings for watchers that are about to send them. Only a watcher that
# resumes needs older ones, and it can encode them again.
_WARM = 256


def _weight(event: StoreEvent) -> int:
    brought = len(event.entry.value)
    before = event.before
    replaced = len(before.value) if isinstance(before, StoreEntry) else 0
    return _OVERHEAD + (brought if brought > replaced else replaced)


class History:
    __slots__ = ("_bytes", "_events", "_max_bytes", "_max_events", "floor")

    def __init__(self, max_events: int = DEFAULT_EVENTS, max_bytes: int = DEFAULT_BYTES, floor: int = 0) -> None:
        self._events: deque[StoreEvent] = deque()
        self._bytes = 0
        self._max_events = max_events
        self._max_bytes = max_bytes
        self.floor = Revision(floor)

    def __len__(self) -> int:
        return len(self._events)

    @property
    def bytes(self) -> int:
        return self._bytes

    def append(self, event: StoreEvent) -> None:
        events = self._events
        events.append(event)
        self._bytes += _weight(event)
        if len(events) > _WARM:
            events[-_WARM - 1].lines.clear()
        while len(events) > 1 and (len(events) > self._max_events or self._bytes > self._max_bytes):
            oldest = events.popleft()
            self._bytes -= _weight(oldest)
            self.floor = oldest.revision

    def newest_first(self, after: Revision) -> Iterator[StoreEvent]:
        """Yield the changes with a revision above `after`, newest first."""
        for event in reversed(self._events):
            if event.entry.revision <= after:
                return
            yield event

    def select(self, table: str, namespace: str, after: Revision) -> list[StoreEvent]:
        """Return the changes of one table, or of one of its namespaces, above `after`, in order."""
        found = [
            event
            for event in self.newest_first(after)
            if event.entry.table == table and (not namespace or event.entry.namespace == namespace)
        ]
        found.reverse()
        return found
