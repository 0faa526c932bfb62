"""Committed state and its recent history, in memory: every read and watch is served from it.

This module knows nothing of disks or writes in flight: `apply` takes a batch that is already durable. Everything runs
on the event loop, so a reader never sees half a batch. Objects that are damaged on disk are not among the entries. A
request for one of them, or for a whole table or namespace that has one, raises ObjectsDamaged: an answer without it
would mean that the object was deleted.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import islice

from remuda.apiserver.storage.feeds import BufferedFeed, Feeds
from remuda.apiserver.storage.history import History
from remuda.apiserver.storage.tables import Key, ObjectTable, entry_position, position
from remuda.apiserver.storage.types import Compacted, Damage, ObjectsDamaged, Revision, StoreEntry, StoreEvent


class Memory:
    def __init__(
        self, tables: dict[str, ObjectTable], history: History, revision: Revision, damaged: Sequence[Damage] = ()
    ) -> None:
        self._tables = tables
        self.damaged = tuple(damaged)
        self.history = history
        self.feeds = Feeds(revision)
        self.revision = revision

    def get(self, table: str, namespace: str, name: str) -> StoreEntry | None:
        held = self._tables.get(table)
        found = None if held is None else held.get(namespace, name)
        if found is None and self.damaged:
            self._refuse([one for one in self.damaged if one.key == (table, namespace, name)])
        return found

    def require_intact(self, table: str, namespace: str) -> None:
        """Raise ObjectsDamaged if a list would be incomplete."""
        if self.damaged:
            concerned = (one for one in self.damaged if one.table == table)
            self._refuse([one for one in concerned if not namespace or one.namespace == namespace])

    def _refuse(self, damaged: Sequence[Damage]) -> None:
        if damaged:
            raise ObjectsDamaged(damaged)

    def count(self, table: str, namespace: str) -> int:
        held = self._tables.get(table)
        if held is None:
            return 0
        return held.count_in(namespace) if namespace else held.count

    def tables(self) -> list[str]:
        return list(self._tables)

    def scan(self, table: str, namespace: str, after: Key | None, limit: int) -> list[StoreEntry]:
        self.require_intact(table, namespace)
        return self.intact(table, namespace, after, limit)

    def intact(self, table: str, namespace: str, after: Key | None, limit: int) -> list[StoreEntry]:
        """Scan without the damaged objects."""
        held = self._tables.get(table)
        return [] if held is None else held.scan(namespace, after, limit)

    def scan_at(self, table: str, namespace: str, after: Key | None, limit: int, at: Revision) -> list[StoreEntry]:
        """Return the state at an older revision: the current state with every later change undone."""
        self.require_intact(table, namespace)
        if at < self.history.floor:
            raise Compacted(at, self.history.floor)
        undone = self._undone(table, namespace, at)
        if not undone:
            return self.scan(table, namespace, after, limit)
        held = self._tables.get(table)
        kept = (entry for entry in held.walk(namespace, after) if entry.key not in undone) if held else ()
        behind = position(after) if after else ("", "")
        restored = [entry for entry in undone.values() if entry and entry_position(entry) > behind]
        restored.sort(key=entry_position)
        return list(islice(heapq.merge(kept, restored, key=entry_position), limit or None))

    def watch(self, table: str, namespace: str, since: Revision, name: str = "") -> BufferedFeed:
        # A client with a revision above ours has seen another history, such as that of another data directory.
        if not self.history.floor <= since <= self.revision:
            raise Compacted(since, self.history.floor, self.revision)
        backlog = self.history.select(table, namespace, since)
        if name:
            backlog = [event for event in backlog if event.entry.name == name]
        return self.feeds.open((table, namespace, name), since, backlog)

    def apply(self, events: Iterable[StoreEvent]) -> None:
        """Make a durable batch, in the order of revisions, visible to readers and watchers."""
        applied = events if isinstance(events, Sequence) else list(events)
        for event in applied:
            self._apply_one(event)
        self.revision = applied[-1].entry.revision
        self.feeds.publish(applied)

    def _apply_one(self, event: StoreEvent) -> None:
        entry = event.entry
        held = self._tables.get(entry.table)
        if held is None:
            held = self._tables[entry.table] = ObjectTable()
        if event.type != "DELETED":
            held.set(entry)
        else:
            held.remove(entry.namespace, entry.name)
            if not held.count:
                del self._tables[entry.table]
        self.history.append(event)

    def _undone(self, table: str, namespace: str, at: Revision) -> dict[Key, StoreEntry | None]:
        """Return the state at `at` of each key changed since: the state before its oldest change after `at`."""
        undone: dict[Key, StoreEntry | None] = {}
        for event in self.history.newest_first(at):
            entry, before = event.entry, event.before
            if entry.table != table or (namespace and entry.namespace != namespace):
                continue
            if before is not None and not isinstance(before, StoreEntry):
                raise Compacted(at, entry.revision)  # lost with a restart, and no older event has it
            # Newest first, so that the oldest change since `at` is the one that remains.
            undone[entry.key] = before
        return undone
