"""Virtual time: what takes a day takes no time, in the right order, and the same way every time."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.kube import clock, random_source
from remuda.lab.simulator import loop as virtual


def test_virtual_loop_skips_sleep_time() -> None:
    async def main() -> float:
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time() - before

    started = time.monotonic()
    assert virtual.run(main()) == pytest.approx(86_400)
    assert time.monotonic() - started < 3600


@given(st.lists(st.floats(0, 1e6), max_size=20))
def test_virtual_timers_fire_in_order_at_their_deadlines(delays: list[float]) -> None:
    async def main() -> list[tuple[float, float]]:
        fired: list[tuple[float, float]] = []

        async def one(delay: float) -> None:
            await asyncio.sleep(delay)
            fired.append((delay, asyncio.get_running_loop().time()))

        await asyncio.gather(*(one(delay) for delay in delays))
        return fired

    fired = virtual.run(main())
    assert [delay for delay, _ in fired] == sorted(delays)
    assert all(at == pytest.approx(delay, abs=1e-6) for delay, at in fired)


def test_wall_clock_follows_virtual_time_and_is_restored() -> None:
    async def main() -> tuple[str, str]:
        before = clock.now()
        await asyncio.sleep(3600)
        return before, clock.now()

    assert virtual.run(main()) == ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")
    assert abs(clock.time() - time.time()) < 60


def test_wall_clock_is_restored_after_an_error() -> None:
    async def main() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        virtual.run(main())
    assert abs(clock.time() - time.time()) < 60


def test_random_source_is_determined_by_the_seed() -> None:
    async def main() -> str:
        return random_source.uid()

    assert virtual.run(main(), seed=1) == virtual.run(main(), seed=1) != virtual.run(main(), seed=2)


def test_to_thread_runs_in_the_calling_thread() -> None:
    async def main() -> int:
        return await asyncio.to_thread(threading.get_ident)

    assert virtual.run(main()) == threading.get_ident()


def test_to_thread_error_is_raised_to_the_awaiter() -> None:
    def fail() -> None:
        raise KeyError("here")

    async def main() -> None:
        await asyncio.to_thread(fail)

    with pytest.raises(KeyError, match="here"):
        virtual.run(main())


def test_endless_wait_raises_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "_IDLE_SECONDS", 0.01)

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(virtual.Stalled):
        virtual.run(main())


def test_virtual_time_does_not_advance_during_store_commits(tmp_path: Path) -> None:
    async def main() -> tuple[float, bool]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual.VirtualLoop)
        store = await SqliteStore.open(tmp_path)
        loop.stand_still_while(lambda: store.in_flight > 0)
        late = False

        def too_late() -> None:
            nonlocal late
            late = True

        alarm = loop.call_later(0.001, too_late)
        for number in range(20):
            await store.put("things", "", str(number), lambda revision: b"{}", expect=None)
        alarm.cancel()
        await store.close()
        return loop.time(), late

    assert virtual.run(main()) == (0.0, False)
