"""The store: memory in front, a writer thread and SQLite behind it. See `protocol.Store` for its guarantees.

A write gets its revision and its place in the queue at once, on the event loop. Until it is on disk, only `latest`
shows it. When the disk confirms a batch, the loop makes it visible in one step: memory, feeds, listeners, and last the
waiting writers.

Revisions only grow: those of a failed batch are skipped. After a restart the counter continues after the newest
revision on disk, which is the newest that any client has seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from remuda.apiserver.storage import directory
from remuda.apiserver.storage.disk import Disk
from remuda.apiserver.storage.feeds import BufferedFeed
from remuda.apiserver.storage.history import DEFAULT_BYTES, DEFAULT_EVENTS, History
from remuda.apiserver.storage.memory import Memory
from remuda.apiserver.storage.reserve import Reserve, free_bytes, leads_to_delete
from remuda.apiserver.storage.types import (
    Damage,
    DiskFull,
    EventType,
    Listener,
    Revision,
    StorageFailed,
    StoreEntry,
    StoreEvent,
    WriteConflict,
)
from remuda.apiserver.storage.writer import StoreWriter, Unwritten, Write

_log = logging.getLogger(__name__)

_SCAN_CHUNK = 500

_Key = tuple[str, str, str]


class SqliteStore:
    """The implementation of `Store`. Created by `open`; all other methods are called on the loop that created it."""

    def __init__(
        self,
        lock: directory.DirectoryLock | None,
        disk: Disk | None,
        memory: Memory,
        reserve: Reserve | None = None,
    ) -> None:
        self._lock = lock
        self._reserve = reserve
        self._memory = memory
        self._assigned: int = memory.revision
        self._overlay: dict[_Key, Write] = {}  # newest write in flight of each key
        self._in_flight: dict[Write, None] = {}
        self._unsent: list[Write] = []
        self._settling: asyncio.Future[bool] | None = None  # resolved by the next commit, or its failure
        self._listeners: list[Listener] = []
        self._closed = False
        self.refusing: Callable[[], str] | None = None  # returns why writes are refused now; empty: they are accepted
        self._loop = asyncio.get_running_loop()
        self._writer: StoreWriter | Unwritten = (
            Unwritten(on_committed=self._committed)
            if disk is None or reserve is None
            else StoreWriter(disk, reserve, on_committed=self._committed, on_failed=self._failed)
        )
        self._writer.start(memory.history.floor)
        if reserve is not None and reserve.is_full:
            self._writer.save_space(True)

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        history_events: int = DEFAULT_EVENTS,
        history_bytes: int = DEFAULT_BYTES,
        vfs: str | None = None,
        reserve_bytes: int = 0,
        free: Callable[[Path], int] = free_bytes,
    ) -> SqliteStore:
        """Open or create the store in a directory, with `reserve_bytes` for deletes on a full disk. Raise StoreLocked,
        StoreCorrupt, StoreTooNew, StoreUnusable.
        """
        home = Path(path)
        directory.prepare(home)
        lock = directory.DirectoryLock(home)

        reserve = Reserve(home, reserve_bytes, free)

        def load() -> tuple[Disk, Memory]:
            reserve.take()  # or release it: opening needs some space too
            disk = Disk(home / directory.DATABASE, vfs=vfs)
            try:
                return disk, Memory(*disk.load(history_events, history_bytes))
            except BaseException:
                disk.close()
                raise

        try:
            disk, memory = await asyncio.to_thread(load)
        except BaseException:
            lock.release()
            raise
        return cls(lock, disk, memory, reserve)

    @classmethod
    def volatile(cls) -> SqliteStore:
        """Return a store in memory, for simulations: without a disk, and without a thread, whose timing would affect
        the order of events.
        """
        return cls(None, None, Memory({}, History(), Revision(0)))

    async def close(self) -> None:
        """Bring the writes in flight to disk, end the feeds, and leave one database file."""
        if self._closed:
            return
        self._closed = True
        self._send()
        await self._writer.stop()
        # Feeds close after the writer, so that watchers get the last events. The lock is last: the next server must
        # find a closed database.
        self._memory.feeds.close()
        if self._lock is not None:
            self._lock.release()

    def lack_of_room(self) -> str:
        """Return why only deletes are accepted now; empty if the disk is not (or no longer) full."""
        if self._reserve is None or not self._reserve.is_full:
            return ""
        if not self._reserve.take():
            return self._reserve.complaint()
        self._writer.save_space(False)
        return ""

    def _is_full(self) -> bool:
        return self._reserve is not None and self._reserve.is_full

    @property
    def in_flight(self) -> int:
        """Return the number of writes that are not on disk yet."""
        return len(self._in_flight)

    @property
    def revision(self) -> Revision:
        return self._memory.revision

    @property
    def oldest(self) -> Revision:
        return self._memory.history.floor

    def get(self, table: str, namespace: str, name: str) -> StoreEntry | None:
        return self._memory.get(table, namespace, name)

    def latest(self, table: str, namespace: str, name: str) -> StoreEntry | None:
        write = self._overlay.get((table, namespace, name))
        if write is None:
            return self._memory.get(table, namespace, name)
        return None if write.event.type == "DELETED" else write.event.entry

    def scan(
        self,
        table: str,
        namespace: str = "",
        *,
        after: tuple[str, str] | None = None,
        limit: int = 0,
        at: Revision | None = None,
    ) -> Sequence[StoreEntry]:
        if at is None or at >= self._memory.revision:
            return self._memory.scan(table, namespace, after, limit)
        return self._memory.scan_at(table, namespace, after, limit, at)

    def intact(self, table: str, namespace: str = "", *, limit: int = 0) -> Sequence[StoreEntry]:
        return self._memory.intact(table, namespace, None, limit)

    @property
    def damaged(self) -> Sequence[Damage]:
        return self._memory.damaged

    def count(self, table: str, namespace: str = "") -> int:
        return self._memory.count(table, namespace)

    def count_latest(self, table: str, namespace: str) -> int:
        self._memory.require_intact(table, namespace)
        found = self._memory.count(table, namespace)
        for key, write in self._overlay.items():
            if key[0] == table and key[1] == namespace:
                found += (write.event.type != "DELETED") - (self._memory.get(*key) is not None)
        return found

    def scan_latest(self, table: str, namespace: str = "") -> Sequence[StoreEntry]:
        pending = {
            key[1:]: write.event
            for key, write in self._overlay.items()
            if key[0] == table and (not namespace or key[1] == namespace)
        }
        committed = self._memory.scan(table, namespace, None, 0)
        if not pending:
            return committed
        kept = [entry for entry in committed if entry.key not in pending]
        return [*kept, *(event.entry for event in pending.values() if event.type != "DELETED")]

    def tables(self) -> list[str]:
        return self._memory.tables()

    async def scan_all(self) -> AsyncIterator[StoreEntry]:
        for table in self._memory.tables():
            after = None
            while chunk := self._memory.intact(table, "", after, _SCAN_CHUNK):
                for entry in chunk:
                    yield entry
                after = chunk[-1].key
                await asyncio.sleep(0)

    def watch(self, table: str, namespace: str = "", name: str = "", *, since: Revision) -> BufferedFeed:
        return self._memory.watch(table, namespace, since, name)

    def end_watches(self, table: str) -> None:
        self._memory.feeds.end(table)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    async def put(
        self,
        table: str,
        namespace: str,
        name: str,
        encode: Callable[[Revision], bytes],
        *,
        expect: StoreEntry | None,
    ) -> StoreEntry:
        kind: EventType = "ADDED" if expect is None else "MODIFIED"
        return await self._write(kind, table, namespace, name, encode, expect)

    async def delete(
        self, table: str, namespace: str, name: str, encode: Callable[[Revision], bytes], *, expect: StoreEntry
    ) -> StoreEntry:
        return await self._write("DELETED", table, namespace, name, encode, expect)

    async def settle(self, revision: Revision | None = None) -> None:
        if revision is None:
            newest = next(reversed(self._in_flight), None)
            revision = self._memory.revision if newest is None else newest.event.entry.revision
        while self._memory.revision < revision:
            self._settling = self._settling or self._loop.create_future()
            # Many callers share this future: a cancelled caller must not cancel it for the others.
            if not await asyncio.shield(self._settling):
                raise StorageFailed("a write that the answer depends on was not stored")

    def _tell_settled(self, stored: bool) -> None:
        if self._settling is not None:
            self._settling.set_result(stored)
            self._settling = None

    def _write(
        self,
        kind: EventType,
        table: str,
        namespace: str,
        name: str,
        encode: Callable[[Revision], bytes],
        expect: StoreEntry | None,
    ) -> asyncio.Future[StoreEntry]:
        """Assign the write its revision and its place; the future resolves when it is on disk.

        If a caller stops waiting, the write continues.
        """
        if self._closed:
            raise StorageFailed("the store is closed")
        if self.refusing is not None and (why := self.refusing()):
            raise StorageFailed(why)
        # No await between this check and the overlay, so no other write of this key can come in between.
        current = self.latest(table, namespace, name)
        if current is not expect and (current is None or expect is None or current.revision != expect.revision):
            raise WriteConflict(f"{table} {namespace}/{name} is not as expected")
        revision = Revision(self._assigned + 1)
        entry = StoreEntry(table, namespace, name, revision, encode(revision))
        if self._is_full() and not leads_to_delete(kind, entry) and (why := self.lack_of_room()):
            raise DiskFull(why)
        # Only now, because `encode` and the check above may raise, and must then leave no trace.
        self._assigned = revision
        write = Write(StoreEvent(kind, entry, current), self._loop.create_future())
        self._overlay[table, namespace, name] = write
        self._in_flight[write] = None
        if not self._unsent:
            # The writes of one loop iteration travel together: one hand-over, one transaction.
            self._loop.call_soon(self._send)
        self._unsent.append(write)
        return write.waiter

    def _send(self) -> None:
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            self._writer.submit(unsent)

    def _committed(self, writes: Sequence[Write]) -> None:
        events = [write.event for write in writes]
        self._memory.apply(events)
        # On a full disk the log is kept as short as possible: watches resume from memory, until a restart.
        self._writer.floor = self.revision if self._is_full() else self._memory.history.floor
        for write in writes:
            self._forget(write)
        # Listeners run before the writers return: the RBAC index, for example, is never behind an acknowledged write.
        for listener in tuple(self._listeners):
            try:
                listener(events)
            except Exception:
                _log.exception("a listener of the store failed; it may have missed revision %d", self.revision)
        for write in writes:
            if not write.waiter.done():
                write.waiter.set_result(write.event.entry)
        self._tell_settled(True)

    def _forget(self, write: Write) -> None:
        del self._in_flight[write]
        entry = write.event.entry
        key = (entry.table, entry.namespace, entry.name)
        # A newer write of the same key may be in flight; `latest` must keep showing that one.
        if self._overlay.get(key) is write:
            del self._overlay[key]

    def _failed(self, failure: StorageFailed) -> None:
        """Fail every write in flight, also those after the failed batch: they may build on it."""
        if isinstance(failure, DiskFull) and self._reserve is not None:
            self._writer.floor = self.revision
            failure = DiskFull(f"{failure.why}: {self._reserve.complaint()}")
        _log.error("%s", failure.why)
        lost, self._in_flight = self._in_flight, {}
        self._overlay.clear()
        self._unsent.clear()
        # After all writes in flight are dropped: later writes do not build on a lost write.
        self._writer.resume()
        for write in lost:
            if not write.waiter.done():
                write.waiter.set_exception(type(failure)(failure.why))
        self._tell_settled(False)
