"""The queue against a model of what was asked of it, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from remuda.kube import random_source
from remuda.lab.simulator.loop import VirtualLoop, run
from remuda.runtime.queue import LOW, NORMAL, Backoff, Queue
from tests.unit.runtime.things import virtually

KEYS = st.sampled_from("abcde")
PRIORITIES = st.sampled_from((LOW, NORMAL))
TINY = 1e-9
SECONDS = st.sampled_from((0.0, 0.05, 0.1, 1.0, 7.0))


class QueueModel(RuleBasedStateMachine):
    """A key is asked for now, or for a later moment, of which only the earliest counts; a run that begins then or later
    fulfils that."""

    def __init__(self) -> None:
        super().__init__()
        random_source.use(random.Random(1))  # delays are spread: the same steps must take the same time
        self.loop = VirtualLoop()
        self.errors: list[BaseException | None] = []
        self.loop.set_exception_handler(lambda loop, context: self.errors.append(context.get("exception")))
        self.asked: dict[str, float] = {}
        self.later: dict[str, float] = {}
        self.running: set[str] = set()
        self.ended: dict[str, float] = {}
        self.failures: dict[str, int] = {}

    @initialize(workers=st.integers(1, 3), interval=st.sampled_from((0.0, 0.1)), opened=st.booleans())
    def begin(self, workers: int, interval: float, opened: bool) -> None:
        self.workers = workers
        self.interval = interval
        self.opened = False
        self.queue: Queue[str] = Queue(self.start, workers=workers, interval=interval, backoff=Backoff(1.0, 30.0))
        if opened:
            self.open()

    def now(self) -> float:
        return self.loop.time()

    def do(self, act: Callable[[], Any]) -> Any:
        async def acting() -> Any:
            result = act()
            await asyncio.sleep(1e-6)  # no two things happen at the same moment
            return result

        return self.loop.run_until_complete(acting())

    def start(self, key: str) -> None:
        assert self.opened
        assert key not in self.running
        assert len(self.running) < self.workers
        assert self.now() >= self.ended.get(key, -1.0) + self.interval
        self.pass_time(self.now() + TINY)
        assert key in self.asked, f"{key} runs though nobody wanted it"
        del self.asked[key]
        self.later.pop(key, None)  # a run sees what it was to look at later
        self.running.add(key)

    def pass_time(self, now: float) -> None:
        """What was wanted for later and is due is wanted now."""
        for key in [key for key, when in self.later.items() if when <= now]:
            self.asked[key] = self.later.pop(key)

    def want(self, key: str, when: float) -> None:
        self.later[key] = min(when, self.later.get(key, when))

    @precondition(lambda self: not self.opened)
    @rule()
    def open(self) -> None:
        self.opened = True
        self.do(self.queue.open)

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: int) -> None:
        self.asked[key] = self.now()
        self.do(lambda: self.queue.add(key, priority))

    @rule(key=KEYS, seconds=SECONDS)
    def add_after(self, key: str, seconds: float) -> None:
        self.want(key, self.now() + seconds)
        self.do(lambda: self.queue.add_after(key, seconds))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data: st.DataObject, fails: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))

        def finishing() -> None:
            if fails:
                delay = self.queue.failed(key)
                self.failures[key] = self.failures.get(key, 0) + 1
                assert delay <= min(30.0, 2.0 ** (self.failures[key] - 1))
                self.want(key, self.now() + delay)
            else:
                self.queue.forget(key)
                self.failures.pop(key, None)
            self.running.discard(key)
            self.ended[key] = self.now()
            self.queue.done(key)

        self.do(finishing)
        assert self.queue.failures(key) == self.failures.get(key, 0)

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "queue"):
            return
        assert self.errors == []
        assert self.queue.working == len(self.running)
        self.pass_time(self.now() - TINY)
        assert not (self.queue.idle and self.asked), f"{self.asked} are lost"
        if self.opened and len(self.running) < self.workers:
            assert self.queue.depth == 0, "a worker is free and a key waits"

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            if not self.opened:
                self.open()
            rounds = 0
            while self.running or self.asked or self.later:
                rounds += 1
                assert rounds < 100, f"{self.asked} {self.later} will never be fulfilled"
                for key in sorted(self.running):
                    self.running.discard(key)
                    self.ended[key] = self.now()
                    self.do(lambda key=key: (self.queue.forget(key), self.queue.done(key)))
                self.loop.run_until_complete(asyncio.sleep(10.0))
            self.loop.run_until_complete(asyncio.sleep(self.interval))
            assert self.errors == []
            kept = {name: value for name, value in vars(self.queue).items() if isinstance(value, dict) and value}
            assert kept == {}, "something is kept for keys that are idle"
        random_source.use(None)
        self.loop.close()


TestQueueModel = QueueModel.TestCase


class RecordingWorkers:
    """Workers that take note of what they are given."""

    def __init__(self, **options: Any) -> None:
        self.given: list[str] = []
        self.queue: Queue[str] = Queue(self.given.append, **options)

    def finish(self, key: str) -> None:
        self.queue.forget(key)
        self.queue.done(key)


@virtually
async def test_normal_priority_keys_run_before_low_priority_keys() -> None:
    workers = RecordingWorkers(workers=1)
    for key in ("a", "b", "c"):
        workers.queue.add(key, LOW)
    workers.queue.add("d", NORMAL)
    workers.queue.add("c", NORMAL)
    workers.queue.open()
    for key in "dcab":
        assert workers.given[-1] == key
        workers.finish(key)
    assert workers.given == ["d", "c", "a", "b"]
    assert workers.queue.idle


@virtually
async def test_waiting_key_added_again_runs_once() -> None:
    workers = RecordingWorkers(workers=1)
    for _ in range(5):
        workers.queue.add("a")
    assert workers.queue.depth == 1
    workers.queue.open()
    workers.finish("a")
    assert workers.given == ["a"]


@virtually
async def test_key_added_while_running_runs_again_once_after_interval() -> None:
    loop = asyncio.get_running_loop()
    workers = RecordingWorkers(interval=0.1)
    workers.queue.open()
    workers.queue.add("a")
    for _ in range(3):
        workers.queue.add("a")
    workers.finish("a")
    assert workers.given == ["a"]
    assert not workers.queue.idle
    await asyncio.sleep(0.1)
    assert workers.given == ["a", "a"]
    assert loop.time() == pytest.approx(0.1)


@virtually
async def test_earliest_delay_of_a_key_takes_precedence() -> None:
    workers = RecordingWorkers()
    workers.queue.open()
    workers.queue.add_after("a", 10)
    workers.queue.add_after("a", 20)
    workers.queue.add_after("a", 5)
    await asyncio.sleep(5.01)
    assert workers.given == ["a"]
    workers.finish("a")
    await asyncio.sleep(60)
    assert workers.given == ["a"]


@virtually
async def test_forgiven_failures_cause_no_back_off() -> None:
    workers = RecordingWorkers(backoff=Backoff(first=1.0, most=5.0))
    workers.queue.open()
    delays = [workers.queue.failed("a") for _ in range(6)]
    assert all(0.8 * most <= delay <= most for delay, most in zip(delays, (1, 2, 4, 5, 5, 5), strict=True))
    workers.queue.forget("a")
    assert [workers.queue.failed("a", forgiven=2) for _ in range(2)] == [0.0, 0.0]
    assert 0.8 <= workers.queue.failed("a", forgiven=2) <= 1.0


@virtually
async def test_closed_queue_starts_no_keys() -> None:
    workers = RecordingWorkers(interval=0.1)
    workers.queue.open()
    workers.queue.add("running")
    workers.queue.add_after("later", 1)
    workers.queue.close()
    workers.queue.add("another")
    workers.queue.add_after("much later", 2)
    workers.queue.failed("running")
    workers.queue.done("running")
    await asyncio.sleep(600)
    assert workers.given == ["running"]


@virtually
async def test_queue_reports_wait_and_work_durations() -> None:
    waited: list[float] = []
    workers = RecordingWorkers(workers=1, waited=waited.append)
    workers.queue.open()
    workers.queue.add("a")
    workers.queue.add("b")
    await asyncio.sleep(2)
    assert (workers.queue.unfinished_seconds(), workers.queue.longest_seconds()) == (2.0, 2.0)
    workers.finish("a")
    assert waited == [0.0, 2.0]
    workers.finish("b")
    assert (workers.queue.unfinished_seconds(), workers.queue.longest_seconds()) == (0.0, 0.0)


def test_backoff_jitter_is_determined_by_seed() -> None:
    async def draw() -> list[float]:
        return [Backoff().seconds(n) for n in range(1, 9)]

    assert run(draw(), seed=1) == run(draw(), seed=1)
    assert run(draw(), seed=1) != run(draw(), seed=2)
    assert 0.0 < random_source.between(0.1, 0.2) < 0.3


def test_queue_works_on_uvloop() -> None:
    """uvloop has its own handles, and others for what is due at once."""
    started: list[str] = []

    async def wish() -> None:
        queue: Queue[str] = Queue(started.append)
        queue.open()
        for seconds in (0.0, 0.01, 0.0, -1.0, 0.005):
            queue.add_after("a", seconds)
        await asyncio.sleep(0.02)
        queue.done("a")
        queue.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(wish())
    assert started == ["a"]
