"""Each key is done as often as it has to be, never twice at a time, and never given up."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from remuda.apiserver.upkeep import worker as module
from remuda.apiserver.upkeep.worker import Worker
from remuda.kube.errors import conflict
from tests.lab.limits import LIMIT_SECONDS


class Recorder:
    """Notes what is done; each run waits until it is let go."""

    def __init__(self, *, open_: bool = True) -> None:
        self.done: list[str] = []
        self.running: Counter[str] = Counter()
        self.most = 0
        self.gate = asyncio.Event()
        if open_:
            self.gate.set()

    async def __call__(self, key: str) -> None:
        self.running[key] += 1
        assert self.running[key] == 1, "one key is never done twice at a time"
        self.most = max(self.most, self.running.total())
        try:
            await self.gate.wait()
            self.done.append(key)
        finally:
            self.running[key] -= 1


async def finish(worker: Worker[str]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not worker.is_idle:
            await asyncio.sleep(0)


async def begin() -> None:
    """What can begin has begun: the queue is looked at, its tasks start."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_queued_key_is_processed_once() -> None:
    record = Recorder()
    worker = Worker("test", record)
    for _ in range(5):
        worker.add("a")
    worker.add("b")
    await finish(worker)
    assert sorted(record.done) == ["a", "b"]


async def test_key_added_while_processing_is_processed_again() -> None:
    record = Recorder(open_=False)
    worker = Worker("test", record)
    worker.add("a")
    await begin()
    for _ in range(3):
        worker.add("a")
    assert record.running["a"] == 1
    record.gate.set()
    await finish(worker)
    assert record.done == ["a", "a"]


async def test_worker_limits_parallelism_and_keeps_order() -> None:
    record = Recorder(open_=False)
    worker = Worker("test", record, parallel=3)
    keys = [f"k{i:03}" for i in range(50)]
    for key in keys:
        worker.add(key)
    await begin()
    assert record.running.total() == 3
    record.gate.set()
    await finish(worker)
    assert record.most == 3
    assert record.done == keys


async def test_busy_key_does_not_block_other_keys() -> None:
    record = Recorder(open_=False)
    worker = Worker("test", record, parallel=2)
    worker.add("busy")
    await begin()
    worker.add("busy")
    worker.add("other")
    await begin()
    assert record.running["other"] == 1
    record.gate.set()
    await finish(worker)


async def test_held_worker_queues_keys_until_released() -> None:
    record = Recorder()
    worker = Worker("test", record)
    worker.hold()
    worker.add("a")
    worker.add("b")
    await begin()
    assert record.done == []
    assert not worker.is_idle
    worker.release()
    await finish(worker)
    assert record.done == ["a", "b"]


@pytest.mark.parametrize("problem", [conflict("", "pods", "p"), RuntimeError("a defect")])
async def test_failed_key_is_retried_with_exponential_backoff(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []
    failures = 12

    async def process(key: str) -> None:
        if len(delays) < failures:
            raise problem

    worker = Worker("test", process)

    def at_once(key: str, seconds: float) -> None:
        delays.append(seconds)
        asyncio.get_running_loop().call_soon(worker.add, key)

    monkeypatch.setattr(worker, "add_later", at_once)
    worker.add("a")
    while len(delays) < failures:
        await begin()
    await finish(worker)
    assert delays[:4] == [0.05, 0.1, 0.2, 0.4]
    assert delays[-1] == 30.0


async def test_success_resets_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_DELAY", 0.0)
    tries = 0

    async def process(key: str) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise conflict("", "pods", "p")

    worker = Worker("test", process)
    worker.add("a")
    while tries < 2:
        await asyncio.sleep(0.001)
    await finish(worker)
    assert worker._delays == {}


async def test_add_processes_delayed_key_immediately() -> None:
    record = Recorder()
    worker = Worker("test", record)
    worker.add_later("a", 1000)
    await begin()
    assert record.done == []
    worker.add("a")
    await finish(worker)
    assert record.done == ["a"]


async def test_earlier_delayed_add_takes_precedence() -> None:
    record = Recorder()
    worker = Worker("test", record)
    worker.add_later("a", 0)
    worker.add_later("a", 1000)
    while not record.done:
        await asyncio.sleep(0.001)
    assert worker.is_idle


async def test_closed_worker_processes_nothing() -> None:
    record = Recorder(open_=False)
    worker = Worker("test", record, parallel=1)
    worker.add("running")
    worker.add("waiting")
    worker.add_later("timed", 0)
    await begin()
    await worker.close()
    record.gate.set()
    worker.add("late")
    worker.add_later("later", 0)
    await asyncio.sleep(0.01)
    assert record.done == []
    assert worker.is_idle


async def test_failure_during_close_is_not_retried() -> None:
    started = asyncio.Event()

    async def process(key: str) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise conflict("", "pods", "p") from None

    worker = Worker("test", process)
    worker.add("a")
    await started.wait()
    await worker.close()
    assert worker.is_idle
