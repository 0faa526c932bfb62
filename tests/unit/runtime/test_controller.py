"""How a reconcile ends, and what becomes of its key then; in virtual time."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from remuda.kube.errors import StatusError, already_exists, conflict
from remuda.kube.objects import Key, Object
from remuda.lab.simulator.loop import START
from remuda.runtime.controller import RECONCILE_SECONDS, Controller
from remuda.runtime.informer import Informer
from remuda.runtime.ledger import Ledger
from remuda.runtime.metrics import Metrics
from remuda.runtime.outcome import DONE, Again, Blocked, Done, Outcome, Retryable, Terminal
from remuda.runtime.queue import Backoff
from remuda.runtime.reconcile_context import current
from tests.unit.runtime.things import CONFIG_MAP, virtually

A, B = Key("ns", "a"), Key("ns", "b")
Answer = Outcome | Exception


class Story:
    """A controller whose reconcile answers as it is told, and the moments at which it was asked."""

    def __init__(self, *answers: Answer, interval: float = 0.0, concurrency: int = 10) -> None:
        self.answers = list(answers)
        self.times: list[float] = []
        self.metrics = Metrics()
        self.ledger = Ledger()
        self.controller = self.controlled(self.reconcile, concurrency, interval)
        self.controller.start()

    def controlled(
        self, reconcile: Callable[[Key], Awaitable[Outcome]], concurrency: int, interval: float
    ) -> Controller:
        return Controller(
            "things",
            CONFIG_MAP,
            reconcile,
            concurrency=concurrency,
            interval=interval,
            metrics=self.metrics,
            ledger=self.ledger,
            backoff=Backoff(first=1.0, most=300.0),
        )

    async def reconcile(self, key: Key) -> Outcome:
        self.times.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0) if self.answers else DONE
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def tell(self, seconds: float = 1000.0) -> list[float]:
        self.controller.enqueue(A)
        await asyncio.sleep(seconds)
        return self.times

    def counted(self, result: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "controller_runtime_reconcile_total", {"controller": "things", "result": result}
        )


@virtually
async def test_done_is_done() -> None:
    story = Story(DONE)
    assert await story.tell() == [0.0]
    assert story.controller.idle
    assert story.counted("success") == 1


@virtually
async def test_again_comes_back_then() -> None:
    story = Story(Again(30.0), Again(10.0))
    assert await story.tell() == [0.0, 30.0, 40.0]
    assert (story.counted("requeue_after"), story.counted("success")) == (2, 1)
    assert story.controller.waits == {}


@virtually
async def test_whoever_waits_for_time_says_why() -> None:
    story = Story(Again(30.0, "the certificate is renewed then"))
    await story.tell(1)
    wait = story.controller.waits[A]
    assert (wait.blocked.message, wait.blocked.on, wait.since) == (
        "the certificate is renewed then",
        "ConfigMap ns/a",
        START,
    )
    await asyncio.sleep(30)
    assert story.controller.waits == {}


@virtually
async def test_blocked_waits_for_an_event_and_remembers_since_when() -> None:
    blocked = Blocked("WaitingForPod", "Pod ns/p", "the Pod is not there")
    story = Story(blocked, msgspec.structs.replace(blocked, message="the Pod is starting"), DONE)
    assert await story.tell(50) == [0.0]
    await story.tell(50)
    wait = story.controller.waits[A]
    assert (wait.blocked.message, wait.since) == ("the Pod is starting", START)
    await story.tell(50)
    assert story.controller.waits == {}
    assert story.times == [0.0, 50.0, 100.0]


@virtually
async def test_waiting_for_something_else_begins_a_new_wait() -> None:
    story = Story(Blocked("One", "Pod ns/p", ""), Blocked("Other", "Pod ns/p", ""))
    await story.tell(50)
    await story.tell(50)
    assert story.controller.waits[A].since == START + 50


@virtually
async def test_blocked_on_what_cannot_be_watched_looks_again() -> None:
    assert await Story(Blocked("Away", "Cluster ns/c", "no answer", check_after=20.0)).tell() == [0.0, 20.0]


@virtually
async def test_failures_back_off_and_success_forgets_them() -> None:
    fails = Retryable("not yet")
    story = Story(fails, fails, fails, DONE, fails)
    times = await story.tell(100)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert all(0.8 * most <= gap <= most for gap, most in zip(gaps, (1, 2, 4), strict=True))
    await story.tell(100)
    assert 0.8 <= story.times[-1] - story.times[-2] <= 1.0
    assert story.counted("error") == 4
    assert (
        story.metrics.registry.get_sample_value("workqueue_retries_total", {"name": "things", "controller": "things"})
        == 4
    )


@virtually
async def test_a_conflict_runs_again_at_once() -> None:
    lost = conflict("", "configmaps", "a")
    story = Story(lost, lost, lost)
    assert await story.tell() == [0.0, 0.0, 0.0, 0.0]
    assert (story.counted("requeue"), story.counted("error")) == (3, 0)


def test_conflicts_are_quiet_until_they_do_not_end(caplog: pytest.LogCaptureFixture) -> None:
    async def tell() -> None:
        story = Story(*[conflict("", "configmaps", "a")] * 10)
        times = await story.tell()
        assert times[3] == 0.0
        assert times[-1] > 30, "many in a row slow the key down"

    virtually(tell)(None)  # type: ignore[arg-type]
    assert [record.getMessage()[:22] for record in caplog.records] == ["10 conflicts in a row:"]


def test_a_name_that_is_taken_is_a_failure_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def tell() -> None:
        story = Story(already_exists("", "configmaps", "a"))
        assert len(await story.tell()) == 2
        assert story.counted("error") == 1

    virtually(tell)(None)  # type: ignore[arg-type]
    assert "already exists; retry in" in caplog.text


def test_a_terminal_error_waits_for_a_change_of_the_object(caplog: pytest.LogCaptureFixture) -> None:
    async def tell() -> None:
        story = Story(Retryable("first"), Terminal("the name cannot be used"))
        assert len(await story.tell()) == 2
        assert story.controller.waits[A].blocked == Blocked("Terminal", "ConfigMap ns/a", "the name cannot be used")
        assert story.counted("error") == 2
        found = story.metrics.registry.get_sample_value
        assert found("controller_runtime_terminal_reconcile_errors_total", {"controller": "things"}) == 1
        await story.tell()
        assert story.controller.waits == {}

    virtually(tell)(None)  # type: ignore[arg-type]
    assert "until the object changes: the name cannot be used" in caplog.text


@pytest.mark.parametrize(
    ("error", "traced"),
    [(StatusError(500, "InternalError", "broken"), False), (OSError("unplugged"), False), (KeyError("typo"), True)],
)
def test_only_errors_nobody_foresaw_are_shown_with_their_origin(
    error: Exception, traced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell() -> None:
        await Story(error).tell()

    virtually(tell)(None)  # type: ignore[arg-type]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert (caplog.records[0].exc_info is not None) == traced


def test_a_reconcile_that_does_not_end_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    async def tell() -> None:
        story = Story()
        turns: list[float] = []

        async def hangs(key: Key) -> Outcome:
            turns.append(asyncio.get_running_loop().time())
            if len(turns) == 1:
                await asyncio.Event().wait()
            return DONE

        controller = Controller(
            "hanging", CONFIG_MAP, hangs, concurrency=1, interval=0.0, metrics=story.metrics, ledger=story.ledger
        )
        controller.start()
        controller.enqueue(A)
        await asyncio.sleep(RECONCILE_SECONDS + 10)
        assert len(turns) == 2
        assert turns[1] >= RECONCILE_SECONDS

    virtually(tell)(None)  # type: ignore[arg-type]
    assert "reconcile failed: TimeoutError; retry in" in caplog.text


@virtually
async def test_one_key_runs_once_at_a_time_and_all_of_them_at_most_so_many() -> None:
    running: set[Key] = set()
    most = 0

    async def slow(key: Key) -> Done:
        nonlocal most
        assert key not in running
        running.add(key)
        most = max(most, len(running))
        await asyncio.sleep(1)
        running.discard(key)
        assert current.get() is not None
        assert current.get().key == key  # type: ignore[union-attr]
        return DONE

    story = Story()
    controller = story.controlled(slow, 3, 0.0)
    controller.start()
    for _ in range(2):
        for number in range(9):
            controller.enqueue(Key("ns", str(number)))
        await asyncio.sleep(0.5)
    await asyncio.sleep(20)
    assert most == 3
    assert controller.idle
    assert story.ledger.reconciles == 9 + 3, "those that ran when they were asked for again ran again"


@virtually
async def test_events_of_a_moment_are_seen_in_one_go() -> None:
    story = Story(interval=0.1)
    for _ in range(50):
        story.controller.enqueue(A)
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    assert 4 <= len(story.times) <= 7


@virtually
async def test_a_delayed_wish_comes_then() -> None:
    story = Story()
    story.controller.enqueue(A, after=42.0)
    await asyncio.sleep(100)
    assert story.times == [42.0]


def owned(name: str, owner: str, revision: int) -> bytes:
    metadata = {"namespace": "ns", "name": name, "resourceVersion": str(revision), "labels": {"owner": owner}}
    return msgspec.json.encode({"metadata": metadata})


def by_owner(obj: Object) -> list[Key]:
    return [Key("ns", obj.metadata.labels["owner"])]


@virtually
async def test_a_watched_object_brings_in_whom_it_points_to_and_whom_it_pointed_to_before() -> None:
    seen: list[str] = []

    async def note(key: Key) -> Outcome:
        seen.append(key.name)
        return DONE

    controller = Story().controlled(note, 10, 0.0)
    informer = Informer(msgspec.json.Decoder(Object).decode, CONFIG_MAP.target)
    informer.replace([owned("x", "first", 1)], 1)
    controller.watch(informer, by_owner)
    controller.watch(informer, by_owner)
    controller.start()
    await asyncio.sleep(1)
    assert seen == ["first"], "also what was there before, and once though watched twice"
    informer.observe(owned("x", "second", 2))
    await asyncio.sleep(1)
    assert sorted(seen[1:]) == ["first", "second"]
    informer.replace([], 3)
    await asyncio.sleep(1)
    assert seen[3:] == ["second"]


@virtually
async def test_an_informer_that_is_gone_is_not_mistaken_for_a_new_one() -> None:
    controller = Story().controller
    for _ in range(3):
        informer = Informer(msgspec.json.Decoder(Object).decode, CONFIG_MAP.target)
        controller.watch(informer, by_owner)
        assert len(informer._listeners) == 1
        del informer
        gc.collect()
    assert len(controller._watched) == 0


@virtually
async def test_stopping_lets_what_runs_finish_within_its_time() -> None:
    finished: list[Key] = []

    async def works(key: Key) -> Outcome:
        await asyncio.sleep(3 if key == A else 100)
        finished.append(key)
        return Again(1.0)

    controller = Story().controlled(works, 10, 0.1)
    controller.start()
    controller.enqueue(A)
    controller.enqueue(B)
    await asyncio.sleep(0)
    await controller.stop(10.0)
    assert asyncio.get_running_loop().time() == 10.0
    assert finished == [A]
    controller.enqueue(A)
    await asyncio.sleep(1000)
    assert finished == [A]
