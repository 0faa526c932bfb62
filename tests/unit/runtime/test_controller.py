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
from remuda.runtime.outcome import DONE, Blocked, Done, Outcome, Requeue, Retryable, Terminal
from remuda.runtime.queue import Backoff
from remuda.runtime.reconcile_context import current
from tests.unit.runtime.things import CONFIG_MAP, virtually

A, B = Key("ns", "a"), Key("ns", "b")
Answer = Outcome | Exception


class ScriptedController:
    """A controller whose reconcile returns the outcomes of a script, and the moments of its calls."""

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

    async def reconcile_times(self, seconds: float = 1000.0) -> list[float]:
        self.controller.enqueue(A)
        await asyncio.sleep(seconds)
        return self.times

    def counted(self, result: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "controller_runtime_reconcile_total", {"controller": "things", "result": result}
        )


@virtually
async def test_done_outcome_is_not_requeued() -> None:
    scripted = ScriptedController(DONE)
    assert await scripted.reconcile_times() == [0.0]
    assert scripted.controller.idle
    assert scripted.counted("success") == 1


@virtually
async def test_again_outcome_requeues_after_its_delay() -> None:
    scripted = ScriptedController(Requeue(30.0), Requeue(10.0))
    assert await scripted.reconcile_times() == [0.0, 30.0, 40.0]
    assert (scripted.counted("requeue_after"), scripted.counted("success")) == (2, 1)
    assert scripted.controller.waits == {}


@virtually
async def test_timed_requeue_records_its_reason() -> None:
    scripted = ScriptedController(Requeue(30.0, "the certificate is renewed then"))
    await scripted.reconcile_times(1)
    wait = scripted.controller.waits[A]
    assert (wait.blocked.message, wait.blocked.on, wait.since) == (
        "the certificate is renewed then",
        "ConfigMap ns/a",
        START,
    )
    await asyncio.sleep(30)
    assert scripted.controller.waits == {}


@virtually
async def test_blocked_outcome_waits_for_event_and_keeps_start_time() -> None:
    blocked = Blocked("WaitingForPod", "Pod ns/p", "the Pod is not there")
    scripted = ScriptedController(blocked, msgspec.structs.replace(blocked, message="the Pod is starting"), DONE)
    assert await scripted.reconcile_times(50) == [0.0]
    await scripted.reconcile_times(50)
    wait = scripted.controller.waits[A]
    assert (wait.blocked.message, wait.since) == ("the Pod is starting", START)
    await scripted.reconcile_times(50)
    assert scripted.controller.waits == {}
    assert scripted.times == [0.0, 50.0, 100.0]


@virtually
async def test_new_blocked_reason_starts_a_new_wait() -> None:
    scripted = ScriptedController(Blocked("One", "Pod ns/p", ""), Blocked("Other", "Pod ns/p", ""))
    await scripted.reconcile_times(50)
    await scripted.reconcile_times(50)
    assert scripted.controller.waits[A].since == START + 50


@virtually
async def test_blocked_with_check_after_is_requeued() -> None:
    assert await ScriptedController(
        Blocked("Away", "Cluster ns/c", "no answer", check_after=20.0)
    ).reconcile_times() == [0.0, 20.0]


@virtually
async def test_failures_back_off_and_success_resets_backoff() -> None:
    fails = Retryable("not yet")
    scripted = ScriptedController(fails, fails, fails, DONE, fails)
    times = await scripted.reconcile_times(100)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert all(0.8 * most <= gap <= most for gap, most in zip(gaps, (1, 2, 4), strict=True))
    await scripted.reconcile_times(100)
    assert 0.8 <= scripted.times[-1] - scripted.times[-2] <= 1.0
    assert scripted.counted("error") == 4
    assert (
        scripted.metrics.registry.get_sample_value(
            "workqueue_retries_total", {"name": "things", "controller": "things"}
        )
        == 4
    )


@virtually
async def test_conflict_is_requeued_immediately() -> None:
    lost = conflict("", "configmaps", "a")
    scripted = ScriptedController(lost, lost, lost)
    assert await scripted.reconcile_times() == [0.0, 0.0, 0.0, 0.0]
    assert (scripted.counted("requeue"), scripted.counted("error")) == (3, 0)


def test_conflicts_are_logged_only_after_ten_in_a_row(caplog: pytest.LogCaptureFixture) -> None:
    async def reconcile_times() -> None:
        scripted = ScriptedController(*[conflict("", "configmaps", "a")] * 10)
        times = await scripted.reconcile_times()
        assert times[3] == 0.0
        assert times[-1] > 30, "many in a row slow the key down"

    virtually(reconcile_times)(None)  # type: ignore[arg-type]
    assert [record.getMessage()[:28] for record in caplog.records] == ["10 write conflicts in a row,"]


def test_already_exists_error_is_logged_as_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def reconcile_times() -> None:
        scripted = ScriptedController(already_exists("", "configmaps", "a"))
        assert len(await scripted.reconcile_times()) == 2
        assert scripted.counted("error") == 1

    virtually(reconcile_times)(None)  # type: ignore[arg-type]
    assert "already exists; retry in" in caplog.text


def test_terminal_error_waits_for_object_change(caplog: pytest.LogCaptureFixture) -> None:
    async def reconcile_times() -> None:
        scripted = ScriptedController(Retryable("first"), Terminal("the name cannot be used"))
        assert len(await scripted.reconcile_times()) == 2
        assert scripted.controller.waits[A].blocked == Blocked("Terminal", "ConfigMap ns/a", "the name cannot be used")
        assert scripted.counted("error") == 2
        found = scripted.metrics.registry.get_sample_value
        assert found("controller_runtime_terminal_reconcile_errors_total", {"controller": "things"}) == 1
        await scripted.reconcile_times()
        assert scripted.controller.waits == {}

    virtually(reconcile_times)(None)  # type: ignore[arg-type]
    assert "until the object changes: the name cannot be used" in caplog.text


@pytest.mark.parametrize(
    ("error", "traced"),
    [(StatusError(500, "InternalError", "broken"), False), (OSError("unplugged"), False), (KeyError("typo"), True)],
)
def test_only_unexpected_errors_are_logged_with_traceback(
    error: Exception, traced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def reconcile_times() -> None:
        await ScriptedController(error).reconcile_times()

    virtually(reconcile_times)(None)  # type: ignore[arg-type]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert (caplog.records[0].exc_info is not None) == traced


def test_hanging_reconcile_times_out_and_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    async def reconcile_times() -> None:
        scripted = ScriptedController()
        turns: list[float] = []

        async def hangs(key: Key) -> Outcome:
            turns.append(asyncio.get_running_loop().time())
            if len(turns) == 1:
                await asyncio.Event().wait()
            return DONE

        controller = Controller(
            "hanging", CONFIG_MAP, hangs, concurrency=1, interval=0.0, metrics=scripted.metrics, ledger=scripted.ledger
        )
        controller.start()
        controller.enqueue(A)
        await asyncio.sleep(RECONCILE_SECONDS + 10)
        assert len(turns) == 2
        assert turns[1] >= RECONCILE_SECONDS

    virtually(reconcile_times)(None)  # type: ignore[arg-type]
    assert "reconcile failed: TimeoutError; retry in" in caplog.text


@virtually
async def test_key_never_runs_concurrently_and_concurrency_is_limited() -> None:
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

    scripted = ScriptedController()
    controller = scripted.controlled(slow, 3, 0.0)
    controller.start()
    for _ in range(2):
        for number in range(9):
            controller.enqueue(Key("ns", str(number)))
        await asyncio.sleep(0.5)
    await asyncio.sleep(20)
    assert most == 3
    assert controller.idle
    assert scripted.ledger.reconciles == 9 + 3, "those that ran when they were asked for again ran again"


@virtually
async def test_rapid_events_are_coalesced() -> None:
    scripted = ScriptedController(interval=0.1)
    for _ in range(50):
        scripted.controller.enqueue(A)
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    assert 4 <= len(scripted.times) <= 7


@virtually
async def test_delayed_enqueue_runs_after_its_delay() -> None:
    scripted = ScriptedController()
    scripted.controller.enqueue(A, after=42.0)
    await asyncio.sleep(100)
    assert scripted.times == [42.0]


def owned(name: str, owner: str, revision: int) -> bytes:
    metadata = {"namespace": "ns", "name": name, "resourceVersion": str(revision), "labels": {"owner": owner}}
    return msgspec.json.encode({"metadata": metadata})


def by_owner(obj: Object) -> list[Key]:
    return [Key("ns", obj.metadata.labels["owner"])]


@virtually
async def test_watch_enqueues_current_and_previous_owners() -> None:
    seen: list[str] = []

    async def note(key: Key) -> Outcome:
        seen.append(key.name)
        return DONE

    controller = ScriptedController().controlled(note, 10, 0.0)
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
async def test_collected_informer_is_not_mistaken_for_a_new_informer() -> None:
    controller = ScriptedController().controller
    for _ in range(3):
        informer = Informer(msgspec.json.Decoder(Object).decode, CONFIG_MAP.target)
        controller.watch(informer, by_owner)
        assert len(informer._listeners) == 1
        del informer
        gc.collect()
    assert len(controller._watched) == 0


@virtually
async def test_controller_stop_waits_for_running_reconciles_until_timeout() -> None:
    finished: list[Key] = []

    async def works(key: Key) -> Outcome:
        await asyncio.sleep(3 if key == A else 100)
        finished.append(key)
        return Requeue(1.0)

    controller = ScriptedController().controlled(works, 10, 0.1)
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
