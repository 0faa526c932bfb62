"""Virtual time: an event loop whose clock jumps to the next timer as soon as nothing is left to do.

Code that takes delays from the loop (`asyncio.sleep`, `loop.call_later`) and wall time from `kube.clock` does not
notice the difference. Nothing runs beside the loop, so a run depends only on its inputs: work for threads runs at once,
and random numbers come from a seeded source. Work in a real thread (that of a durable store) must be declared with
`stand_still_while`: time waits for it, though its speed then affects the order of events.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from remuda.kube import clock, random_source

T = TypeVar("T")

START = 1_767_225_600.0  # 2026-01-01T00:00:00Z: default start of a simulated world
# Real time to wait for something outside the loop: declared work, which a busy machine may delay, or an unknown event.
_WORK_SECONDS, _IDLE_SECONDS = 300.0, 30.0


class Stalled(RuntimeError):
    """Nothing is ready, no timer is set and no other work is declared: the wait would never end."""


class _JumpingSelector(selectors.BaseSelector):
    """Selector that moves the clock to the next timer instead of waiting."""

    def __init__(self, jump: Callable[[float], None], busy: Callable[[], bool]) -> None:
        self._real = selectors.DefaultSelector()
        self._jump = jump
        self._busy = busy

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._real.select(0)
        if events or timeout == 0:
            return events
        if (busy := self._busy()) or timeout is None:
            events = self._real.select(_WORK_SECONDS if busy else _IDLE_SECONDS)
            if not events:
                raise Stalled("nothing can happen any more: no timer is set, and no work is under way")
            return events
        self._jump(timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop in virtual time. `wall()` is the simulated wall time; pass it to `kube.clock.use`, or use `run`, which
    does.
    """

    def __init__(self, start: float = START) -> None:
        self._now = 0.0
        self._start = start
        self._probes: list[Callable[[], bool]] = []
        super().__init__(_JumpingSelector(self._jump, self._busy))

    def time(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._start + self._now

    def stand_still_while(self, probe: Callable[[], bool]) -> None:
        """Stop time while `probe` returns True; the code that makes it return False must wake the loop."""
        self._probes.append(probe)

    def leap(self, seconds: float) -> None:
        """Let time pass in which nothing runs here, as in a suspended process."""
        self._jump(seconds)

    def _jump(self, seconds: float) -> None:
        self._now += seconds

    def _busy(self) -> bool:
        return any(probe() for probe in self._probes)

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run(main: Coroutine[Any, Any, T], *, seed: int = 0, start: float = START) -> T:
    """Run `main` in virtual time. The clock and the random source of this process are those of the simulation."""
    loop = VirtualLoop(start)
    clock.use(loop.wall)
    random_source.use(random.Random(seed))  # noqa: S311 - to be repeated, not to be secret
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(main)
    finally:
        clock.use(None)
        random_source.use(None)
