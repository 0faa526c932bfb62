"""Background tasks with names: they are referenced until they end, and unexpected errors are logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from remuda.runtime import ControllerRuntimeError
from remuda.runtime.reconcile_context import detached

log = logging.getLogger(__name__)

T = TypeVar("T")


class Tasks:
    """The background work of one owner, which ends all of it with `close`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        # A detached context: a background task must not appear as part of the reconcile that started it. The set keeps
        # a reference, because the event loop itself holds tasks only weakly.
        task = asyncio.get_running_loop().create_task(work, name=name, context=detached())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)

    def __len__(self) -> int:
        return len(self._tasks)

    async def finish(self, seconds: float) -> None:
        """Wait until the tasks end, for `seconds` at most."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)

    async def close(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Stopped(ControllerRuntimeError):
    """Raised if this process is stopped before the work is done."""


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T], name: str = "") -> T:
    """Return the result of `work`.

    Raises Stopped, with `work` cancelled, if `stop` is set first: `work` may never end.
    """
    stopped = asyncio.create_task(stop.wait(), name="wait for the end")
    task = asyncio.create_task(work, name=name or None)
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Stopped
        return task.result()
    finally:
        await ended(stopped)
        await ended(task)


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended; ignore its result."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
