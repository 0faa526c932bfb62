"""Writer thread: makes writes durable, many with one sync.

The event loop passes lists of writes through a queue. The thread commits everything queued as one transaction and calls
back once per transaction, in order. Further writes queue up during a sync, so the busier the server, the more writes
share one sync.

If a transaction fails, later writes may build on changes that were lost. The thread drops all writes until the loop,
which has meanwhile failed every write in flight, calls `resume`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from queue import Empty, SimpleQueue
from typing import TypeVar

from remuda.apiserver.storage.disk import Disk
from remuda.apiserver.storage.reserve import Reserve, leads_to_delete
from remuda.apiserver.storage.types import DiskFull, Revision, StorageFailed, StoreEntry, StoreEvent

# Maximum number of changes per transaction: more would save nothing and delay the first of them.
_MAX_BATCH = 1024

# Maintenance that commits did not do waits for a pause of this many seconds.
_IDLE = 0.05

_T = TypeVar("_T")


class Write:
    """Change in flight to disk, and the future of the waiting writer."""

    __slots__ = ("event", "waiter")

    def __init__(self, event: StoreEvent, waiter: asyncio.Future[StoreEntry]) -> None:
        self.event = event
        self.waiter = waiter


class _Signal(Enum):
    RESUME = 1
    STOP = 2
    FULL = 3
    ROOM = 4


class StoreWriter:
    def __init__(
        self,
        disk: Disk,
        reserve: Reserve,
        *,
        on_committed: Callable[[Sequence[Write]], None],
        on_failed: Callable[[StorageFailed], None],
    ) -> None:
        """Start the thread. Both callbacks run on the running event loop."""
        self.floor = Revision(0)  # floor of the history in memory, which the log on disk follows
        self._disk = disk
        self._reserve = reserve
        self._on_committed = on_committed
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        self._stopped = self._loop.create_future()
        self._queue: SimpleQueue[list[Write] | _Signal] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="remuda-store-writer", daemon=True)

    def start(self, floor: Revision) -> None:
        self.floor = floor
        self._thread.start()

    def submit(self, writes: list[Write]) -> None:
        self._queue.put(writes)

    def resume(self) -> None:
        """Accept writes again: the loop has dropped every write submitted before this call."""
        self._queue.put(_Signal.RESUME)

    def save_space(self, is_full: bool) -> None:
        self._queue.put(_Signal.FULL if is_full else _Signal.ROOM)

    async def stop(self) -> None:
        """Commit all submitted writes, then close the disk."""
        self._queue.put(_Signal.STOP)
        await self._stopped

    def _run(self) -> None:
        try:
            while self._step():
                pass
        finally:
            self._disk.close()
            self._call(self._stopped.set_result, None)

    def _step(self) -> bool:
        """Run one transaction, or one step of maintenance. Return False if asked to stop."""
        first = self._next()
        if first is None:
            self._disk.tidy(self.floor)
            return True
        if isinstance(first, _Signal):
            return self._heed(first)
        writes, signal = self._gather(first)
        if self._commit(writes):
            self._disk.checkpoint_if_due()
        elif signal is not _Signal.STOP:
            return self._skip_to_resume()
        return signal is None or self._heed(signal)

    def _heed(self, signal: _Signal) -> bool:
        """Handle a signal. Return False if asked to stop."""
        if signal in (_Signal.FULL, _Signal.ROOM):
            self._disk.save_space(signal is _Signal.FULL)
        return signal is not _Signal.STOP

    def _next(self) -> list[Write] | _Signal | None:
        """Wait for work; return None after a pause, in which maintenance can run."""
        try:
            return self._queue.get(timeout=_IDLE if self._disk.needs_tidying else None)
        except Empty:
            return None

    def _gather(self, writes: list[Write]) -> tuple[list[Write], _Signal | None]:
        while len(writes) < _MAX_BATCH:
            try:
                more = self._queue.get_nowait()
            except Empty:
                break
            if isinstance(more, _Signal):
                return writes, more
            writes.extend(more)
        return writes, None

    def _commit(self, writes: list[Write]) -> bool:
        events = [write.event for write in writes]
        try:
            try:
                self._disk.commit(events, self.floor)
            except DiskFull:
                # The released space is for deletes: they are retried. A batch with any other write fails.
                self._reserve.release()
                self._disk.save_space(True)
                if not all(leads_to_delete(event.type, event.entry) for event in events):
                    raise
                self._disk.commit(events, self.floor)
        except StorageFailed as failure:
            self._call(self._on_failed, failure)
            return False
        self._call(self._on_committed, writes)
        return True

    def _skip_to_resume(self) -> bool:
        """Drop writes until `resume`. Return False if asked to stop."""
        while (message := self._queue.get()) not in (_Signal.RESUME, _Signal.STOP):
            pass
        return message is _Signal.RESUME

    def _call(self, function: Callable[[_T], object], argument: _T) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:
            pass  # the loop is closed, so no writer waits


class Unwritten:
    """Writer of a store without a disk: commits a batch as soon as it is submitted."""

    def __init__(self, *, on_committed: Callable[[Sequence[Write]], None]) -> None:
        self.floor = Revision(0)
        self._on_committed = on_committed

    def start(self, floor: Revision) -> None:
        self.floor = floor

    def submit(self, writes: list[Write]) -> None:
        self._on_committed(writes)

    def resume(self) -> None:
        raise AssertionError("nothing fails without a disk")

    def save_space(self, is_full: bool) -> None:
        """Do nothing: there is no disk."""

    async def stop(self) -> None:
        """Do nothing: nothing is stored."""
