"""Deduplicating work queue with back-off, shared by all duties.

A key that is added while it waits is processed once; added while it is being processed, once more afterwards. A failure
is retried after a delay that doubles up to half a minute, so a broken key costs little and is never given up. A worker
can be held while its duty scans: keys collect, and none is processed on incomplete data.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from remuda.apiserver.storage.types import WriteConflict
from remuda.kube.errors import StatusError

Key = TypeVar("Key", bound=Hashable)
_FIRST_DELAY, _LONGEST_DELAY = 0.05, 30.0
log = logging.getLogger(__name__)


class Worker(Generic[Key]):
    """Runs `process` for every key added, at most `parallel` at a time."""

    def __init__(self, name: str, process: Callable[[Key], Awaitable[None]], *, parallel: int = 16) -> None:
        self._name = name
        self._process = process
        self._parallel = parallel
        # a plain dict gets slow when its first keys are removed one by one
        self._waiting: OrderedDict[Key, None] = OrderedDict()
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._delays: dict[Key, float] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._next_fill: asyncio.Handle | None = None
        self._held = False
        self._closed = False

    def hold(self) -> None:
        """Process nothing until `release`; keys are kept."""
        self._held = True

    def release(self) -> None:
        self._held = False
        self._fill()

    def add(self, key: Key) -> None:
        if self._closed:
            return
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._waiting[key] = None
        if self._next_fill is None:  # not at once: one batch of changes often names a key several times
            self._next_fill = asyncio.get_running_loop().call_soon(self._fill)

    def add_later(self, key: Key, seconds: float) -> None:
        if self._closed or key in self._waiting or key in self._timers:
            return
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self.add, key)

    def _fill(self) -> None:
        self._next_fill = None
        while not self._held and not self._closed and len(self._running) < self._parallel:
            # A running key is processed again when it ends; few keys run, so the search is short.
            key = next((key for key in self._waiting if key not in self._running), None)
            if key is None:
                return
            del self._waiting[key]
            self._running[key] = asyncio.get_running_loop().create_task(self._run(key), name=f"{self._name}:{key}")

    async def _run(self, key: Key) -> None:
        try:
            await self._process(key)
            self._delays.pop(key, None)
        except (StatusError, WriteConflict) as error:
            self._retry(key, error)
        except Exception as error:
            log.exception("%s failed for %s", self._name, key)
            self._retry(key, error)
        finally:
            del self._running[key]
            self._fill()

    def _retry(self, key: Key, error: Exception) -> None:
        delay = self._delays.get(key, _FIRST_DELAY)
        self._delays[key] = min(delay * 2, _LONGEST_DELAY)
        log.debug("%s: retrying %s in %.2f s: %s", self._name, key, delay, error)
        self.add_later(key, delay)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._running and not self._timers

    async def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        if self._next_fill is not None:
            self._next_fill.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
