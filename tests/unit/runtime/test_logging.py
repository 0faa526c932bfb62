"""Log lines of reconciles and steps: what each line carries, and when there is one; in virtual time."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator

import pytest

from remuda.kube.objects import Key
from remuda.runtime.controller import Controller
from remuda.runtime.ledger import Ledger
from remuda.runtime.log_format import ContextFilter, JsonFormatter, TextFormatter
from remuda.runtime.metrics import Metrics
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue, Retryable
from remuda.runtime.queue import Backoff
from remuda.runtime.reconcile_context import CurrentReconcile, current, current_step
from remuda.runtime.steps import note_write, step
from remuda.runtime.tasks import Tasks
from tests.lab.log_lines import LogLines
from tests.unit.runtime.things import CONFIG_MAP, virtually

A, B = Key("ns", "a"), Key("ns", "b")
SADDLE = step("testlog.saddle", "puts the saddle on")
library = logging.getLogger("somebody.elses.library")


@pytest.fixture
def lines() -> Iterator[LogLines]:
    handler, root = LogLines(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


def controller(reconcile: Callable[[Key], Awaitable[Outcome]], name: str = "things") -> Controller:
    made = Controller(
        name,
        CONFIG_MAP,
        reconcile,
        concurrency=10,
        interval=0.0,
        metrics=Metrics(),
        ledger=Ledger(),
        backoff=Backoff(first=1.0, most=300.0),
    )
    made.start()
    return made


def answers(*values: Outcome | Exception) -> Callable[[Key], Awaitable[Outcome]]:
    left = list(values)

    async def reconcile(key: Key) -> Outcome:
        answer = left.pop(0) if left else DONE
        if isinstance(answer, Exception):
            raise answer
        return answer

    return reconcile


def record(message: str, *arguments: object) -> logging.LogRecord:
    made = logging.LogRecord("remuda.thing", logging.INFO, __file__, 1, message, arguments, None)
    made.created = 1_763_426_462.1239
    ContextFilter().filter(made)
    return made


def within(running: CurrentReconcile | None, act: Callable[[], str], name: str = "") -> str:
    """Call `act` as a reconcile would, in a context of its own."""

    async def main() -> str:
        current.set(running)
        current_step.set(name)
        return act()

    return asyncio.run(main())


# ---- formats ---------------------------------------------------------------------------------------------------------

RUNNING = CurrentReconcile("machineset", "MachineSet", Key("fleet", "pool-1"), "k3f9-2")


def test_text_line_names_controller_object_id_and_step() -> None:
    line = within(RUNNING, lambda: TextFormatter().format(record("creates %d", 3)), "machineset.create-machine")
    assert line == (
        "2025-11-18T00:41:02.123Z INFO machineset fleet/pool-1 [k3f9-2] machineset.create-machine: creates 3"
    )


def test_text_line_outside_a_reconcile_names_the_logger() -> None:
    line = within(None, lambda: TextFormatter().format(record("started")))
    assert line == "2025-11-18T00:41:02.123Z INFO remuda.thing: started"


def test_text_line_of_cluster_scoped_object_has_no_slash() -> None:
    running = CurrentReconcile("nodedriver", "NodeDriver", Key("", "nspawn"), "k3f9-7")
    line = within(running, lambda: TextFormatter().format(record("x")))
    assert line.endswith("INFO nodedriver nspawn [k3f9-7]: x")


def test_text_line_escapes_control_characters() -> None:
    line = within(None, lambda: TextFormatter().format(record("a\nWARNING forged \x1b[2J\x9b")))
    assert line.endswith("remuda.thing: a\\nWARNING forged \\x1b[2J\\x9b")


def test_json_line_has_all_fields() -> None:
    line = json.loads(within(RUNNING, lambda: JsonFormatter().format(record('say "%s"', "hi")), "machineset.scale"))
    assert line == {
        "time": "2025-11-18T00:41:02.123Z",
        "level": "info",
        "logger": "remuda.thing",
        "message": 'say "hi"',
        "controller": "machineset",
        "namespace": "fleet",
        "name": "pool-1",
        "reconcile": "k3f9-2",
        "step": "machineset.scale",
    }


def test_json_line_is_one_line_whatever_the_message() -> None:
    line = within(None, lambda: JsonFormatter().format(record("two\nlines, and \udcff")))
    assert "\n" not in line
    assert json.loads(line)["message"] == "two\nlines, and ?"
    assert {"controller", "namespace", "name", "reconcile", "step"}.isdisjoint(json.loads(line))


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_traceback_is_part_of_the_line(formatter: logging.Formatter) -> None:
    try:
        raise ValueError("spooked")
    except ValueError as error:
        made = record("failed")
        made.exc_info = (ValueError, error, error.__traceback__)
    assert "ValueError: spooked" in formatter.format(made)


# ---- context ---------------------------------------------------------------------------------------------------------


def test_concurrent_reconciles_never_mix(lines: LogLines) -> None:
    async def reconcile(key: Key) -> Outcome:
        for turn in range(5):
            async with SADDLE:
                await asyncio.sleep(0.1)
                library.warning("%s %d", key.name, turn)
            await asyncio.sleep(0.1)
        return DONE

    async def scenario() -> None:
        things = controller(reconcile)
        things.enqueue(A)
        things.enqueue(B)
        await asyncio.sleep(10)

    virtually(scenario)(None)  # type: ignore[arg-type]
    said = [line for line in lines.all if line["logger"] == library.name]
    assert [line["message"].split()[0] for line in said[:4]] == ["a", "b", "a", "b"], "they ran side by side"
    assert {(line["name"], line["message"].split()[0]) for line in said} == {("a", "a"), ("b", "b")}
    assert len({(line["name"], line["reconcile"]) for line in lines.all}) == 2
    assert {(line["controller"], line["namespace"]) for line in lines.all} == {("things", "ns")}
    assert {line["step"] for line in said} == {SADDLE.name}


def test_each_reconcile_has_a_unique_id(lines: LogLines) -> None:
    async def reconcile(key: Key) -> Outcome:
        library.info("here")
        return DONE

    async def scenario() -> None:
        things, others = controller(reconcile), controller(reconcile, "others")
        for _ in range(5):
            things.enqueue(A)
            others.enqueue(A)
            await asyncio.sleep(1)

    virtually(scenario)(None)  # type: ignore[arg-type]
    assert len({line["reconcile"] for line in lines.all}) == 10
    assert all(len(line["reconcile"]) < 10 for line in lines.all)


def test_background_task_does_not_keep_the_reconcile_that_started_it(lines: LogLines) -> None:
    tasks = Tasks()

    async def background() -> None:
        library.info("on my own")

    async def reconcile(key: Key) -> Outcome:
        async with SADDLE:
            tasks.spawn("background", background())
        return DONE

    async def scenario() -> None:
        controller(reconcile).enqueue(A)
        await asyncio.sleep(1)

    virtually(scenario)(None)  # type: ignore[arg-type]
    (line,) = [line for line in lines.all if line["message"] == "on my own"]
    assert {"controller", "name", "reconcile", "step"}.isdisjoint(line)


# ---- steps -----------------------------------------------------------------------------------------------------------


def test_acting_step_logs_one_line_with_its_writes(lines: LogLines) -> None:
    async def main() -> None:
        async with SADDLE:
            note_write("create", "machines", "ns", "m-1", "")
            note_write("patch", "nodes", "", "n-1", "status")
        async with SADDLE:
            pass

    asyncio.run(main())
    assert lines.messages == ["puts the saddle on (create machines ns/m-1, patch nodes/status n-1)", SADDLE.doc]
    assert {line["step"] for line in lines.all} == {SADDLE.name}


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_failed_step_is_named_only_in_the_failure_line(lines: LogLines, level: int) -> None:
    logging.getLogger().setLevel(level)

    async def reconcile(key: Key) -> Outcome:
        async with SADDLE:
            note_write("create", "machines", "ns", "lost", "")
            raise Retryable("bucked off")

    async def scenario() -> None:
        things = controller(reconcile)
        things.enqueue(A)
        await asyncio.sleep(0.5)
        await things.stop(0)

    virtually(scenario)(None)  # type: ignore[arg-type]
    (line,) = lines.all
    assert (line["level"], line["name"], line["step"]) == ("warning", "a", SADDLE.name)
    assert line["message"].startswith("reconcile failed: bucked off; retry in ")


def test_step_logs_nothing_when_info_is_disabled(lines: LogLines) -> None:
    async def main() -> None:
        async with SADDLE:
            note_write("create", "machines", "ns", "m-1", "")

    logging.getLogger().setLevel(logging.WARNING)
    asyncio.run(main())
    assert lines.all == []


# ---- outcomes --------------------------------------------------------------------------------------------------------


def outcomes(lines: LogLines, *values: Outcome | Exception) -> list[str]:
    async def scenario() -> None:
        things = controller(answers(*values))
        for _ in values:
            things.enqueue(A)
            await asyncio.sleep(0.01)
        await things.stop(0)

    virtually(scenario)(None)  # type: ignore[arg-type]
    return lines.messages


def test_outcome_is_logged_only_when_it_changes(lines: LogLines) -> None:
    water, more = Blocked("Thirsty", "Trough ns/t", "no water"), Blocked("Thirsty", "Trough ns/t", "half full")
    assert outcomes(lines, DONE, water, water, more, more, DONE, DONE) == [
        "waiting for Trough ns/t: no water (Thirsty)",
        "waiting for Trough ns/t: half full (Thirsty)",
        "done, no longer waiting for Trough ns/t",
    ]
    assert {line["level"] for line in lines.all} == {"info"}


def test_timed_wait_is_logged_as_debug(lines: LogLines) -> None:
    logging.getLogger().setLevel(logging.DEBUG)
    rest = Requeue(60.0, "rests until noon")
    outcomes(lines, rest, rest, Requeue(60.0))
    said = [(line["level"], line["message"]) for line in lines.all if line["logger"] == "remuda.runtime.controller"]
    assert said == [("debug", "waiting: rests until noon (Time)"), ("debug", "done")]


def test_blocked_message_does_not_repeat_object_name(lines: LogLines) -> None:
    assert outcomes(lines, Blocked("Thirsty", "Trough ns/t", "Trough ns/t is empty")) == [
        "waiting: Trough ns/t is empty (Thirsty)"
    ]


def test_recovery_after_a_failure_is_logged(lines: LogLines) -> None:
    water = Blocked("Thirsty", "Trough ns/t", "no water")
    said = outcomes(lines, Retryable("lame"), DONE, DONE, water, Retryable("lame"), water, water)
    assert [message.partition(";")[0] for message in said] == [
        "reconcile failed: lame",
        "succeeded after a failed attempt",
        "waiting for Trough ns/t: no water (Thirsty)",
        "reconcile failed: lame",
        "waiting for Trough ns/t: no water (Thirsty)",
    ]


def test_completed_keys_leave_no_wait_or_failure_state(lines: LogLines) -> None:
    things: list[Controller] = []

    async def scenario() -> None:
        things.append(controller(answers(Retryable("lame"), Blocked("Thirsty", "Trough ns/t", "no water"), DONE)))
        for _ in range(3):
            things[0].enqueue(A)
            await asyncio.sleep(0.01)

    virtually(scenario)(None)  # type: ignore[arg-type]
    assert (things[0].waits, things[0]._failing) == ({}, set())
