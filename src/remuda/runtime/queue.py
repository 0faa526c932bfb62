"""Queue of one controller: each key is queued at most once, and handled by at most one worker.

A key added while it is in progress is queued again afterwards. Of several delays (requeue-after, back-off, the minimum
interval between two runs of one key), the earliest time wins. The queue stores nothing for an idle key.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from remuda.kube import random_source

K = TypeVar("K", bound=Hashable)

LOW, NORMAL = 0, 10  # keys of a first list or a relist wait behind new events


class Backoff:
    """Exponential back-off: the delay doubles with each failure in a row, up to a maximum, with jitter."""

    def __init__(self, first: float = 0.2, most: float = 300.0) -> None:
        self._first = first
        self._most = most

    def seconds(self, failures: int) -> float:
        doubled = self._first * 2.0 ** min(failures - 1, 30)
        return min(doubled, self._most) * random_source.between(0.8, 1.0)


_BUSY = 20  # so many due keys double the pause
_LONGEST_REST = 3.0


class _Timer(NamedTuple):
    """Timer of a key, with its time: a uvloop handle that is due at once has no `when()`."""

    when: float
    handle: asyncio.Handle


class Queue(Generic[K]):
    """Queue of keys. It calls `start` for each due key, at most `workers` at a time; the worker calls `done`."""

    def __init__(
        self,
        start: Callable[[K], None],
        *,
        workers: int = 10,
        interval: float = 0.0,
        backoff: Backoff | None = None,
        waited: Callable[[float], None] | None = None,
    ) -> None:
        self._start = start
        self._waited = waited
        self.workers = workers
        self._interval = interval
        self._backoff = backoff or Backoff()
        self._ready: list[tuple[int, int, K]] = []
        self._order = itertools.count()
        self._waiting: dict[K, tuple[int, float]] = {}  # key → priority it is queued with, and since when
        self._working: dict[K, float] = {}  # key → start of its work
        self._again: dict[K, int] = {}  # added again while in progress
        self._timers: dict[K, _Timer] = {}
        self._failures: dict[K, int] = {}
        self._finished: dict[K, asyncio.Handle] = {}  # ran less than `interval` ago
        self._held: dict[K, int] = {}  # added again within `interval`
        self._open = False
        self._closed = False
        self._pumping = False

    def open(self) -> None:
        self._open = True
        self._pump()

    def close(self) -> None:
        """Start and accept no more keys; work in progress continues."""
        self._open = False
        self._closed = True
        for handle in (*(timer.handle for timer in self._timers.values()), *self._finished.values()):
            handle.cancel()
        for kept in (self._timers, self._finished, self._waiting, self._ready, self._again, self._held):
            kept.clear()

    @property
    def depth(self) -> int:
        """Return the number of keys that are due but not in progress."""
        return len(self._waiting)

    @property
    def working(self) -> int:
        return len(self._working)

    def unfinished_seconds(self) -> float:
        """Return the time spent so far on all keys in progress."""
        now = asyncio.get_running_loop().time()
        return sum(now - began for began in self._working.values())

    def longest_seconds(self) -> float:
        return asyncio.get_running_loop().time() - min(self._working.values()) if self._working else 0.0

    @property
    def idle(self) -> bool:
        """Return whether nothing is due now; only timers may add keys."""
        return not (self._waiting or self._working or self._again or self._held)

    def add(self, key: K, priority: int = NORMAL) -> None:
        if self._closed:
            return
        if key in self._working:
            self._again[key] = max(priority, self._again.get(key, priority))
        elif key in self._finished:
            self._held[key] = max(priority, self._held.get(key, priority))
        else:
            self._enqueue(key, priority)

    def _enqueue(self, key: K, priority: int) -> None:
        present = self._waiting.get(key)
        # A key that is queued already keeps its place, unless the new request has a higher priority.
        if present is None or priority > present[0]:
            since = present[1] if present is not None else asyncio.get_running_loop().time()
            self._waiting[key] = (priority, since)  # an entry of lower priority stays in the heap and is skipped
            heapq.heappush(self._ready, (-priority, next(self._order), key))
            self._pump()

    def add_after(self, key: K, seconds: float, priority: int = NORMAL) -> None:
        """Add the key after some seconds. Of several timers of a key, the earliest wins."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        present = self._timers.get(key)
        if present is not None:
            if present.when <= when:
                return
            present.handle.cancel()
        self._timers[key] = _Timer(when, loop.call_at(when, self._due, key, priority))

    def _due(self, key: K, priority: int) -> None:
        self._timers.pop(key, None)
        self.add(key, priority)

    def failed(self, key: K, *, forgiven: int = 0) -> float:
        """Requeue the key after its back-off, which is returned. Call this before `done`.

        The first `forgiven` failures in a row cause no delay.
        """
        self._failures[key] = self._failures.get(key, 0) + 1
        counted = self._failures[key] - forgiven
        delay = self._backoff.seconds(counted) if counted > 0 else 0.0
        self.add_after(key, delay)
        return delay

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Reset the back-off of a key after a success."""
        self._failures.pop(key, None)

    def done(self, key: K) -> None:
        self._working.pop(key, None)
        # Start the rest before the key is added again below: `add` then holds it until the rest ends.
        if self._interval and self._open:
            loop = asyncio.get_running_loop()
            self._finished[key] = loop.call_later(self._rest_seconds(), self._rested, key)
        priority = self._again.pop(key, None)
        if priority is not None:
            self.add(key, priority)
        self._pump()

    def _rest_seconds(self) -> float:
        """Return the pause after a run of a key. It grows with the backlog, so that more changes share one run."""
        busy = 1 + (len(self._waiting) + len(self._working)) / _BUSY
        return max(self._interval, min(self._interval * busy, _LONGEST_REST))

    def _rested(self, key: K) -> None:
        self._finished.pop(key, None)
        priority = self._held.pop(key, None)
        if priority is not None:
            self.add(key, priority)

    def _pump(self) -> None:
        """Start the keys that may start. Not re-entrant, because `start` may add keys."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._open and self._ready and len(self._working) < self.workers:
                negative, _, key = heapq.heappop(self._ready)
                queued = self._waiting.get(key)
                if queued is None or queued[0] != -negative:
                    continue
                del self._waiting[key]
                if (timer := self._timers.pop(key, None)) is not None:
                    timer.handle.cancel()  # this run handles what the timer was for, and requeues the key itself
                now = asyncio.get_running_loop().time()
                self._working[key] = now
                if self._waited is not None:
                    self._waited(now - queued[1])
                self._start(key)
        finally:
            self._pumping = False
