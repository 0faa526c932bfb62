"""Tasks with an owner."""

from __future__ import annotations

import asyncio
import logging

import pytest

from remuda.runtime.tasks import Stopped, Tasks, ended, unless
from tests.unit.runtime.things import virtually


async def test_closing_owner_cancels_its_tasks() -> None:
    tasks = Tasks()
    forever = tasks.spawn("forever", asyncio.Event().wait())
    assert (len(tasks), forever.get_name()) == (1, "forever")
    await tasks.close()
    assert forever.cancelled()
    assert len(tasks) == 0


async def test_unawaited_task_error_is_logged_with_task_name(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("of all things")

    tasks = Tasks()
    await asyncio.wait((tasks.spawn("the culprit", fails()),))
    await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records] == ["task the culprit failed"]
    assert caplog.records[0].levelno == logging.ERROR
    assert "of all things" in caplog.text


@virtually
async def test_finish_waits_for_tasks_until_timeout() -> None:
    tasks = Tasks()
    short = tasks.spawn("short", asyncio.sleep(1, "done"))
    long = tasks.spawn("long", asyncio.sleep(100))
    await tasks.finish(5)
    assert short.result() == "done"
    assert not long.done()
    assert asyncio.get_running_loop().time() == 5
    await tasks.close()
    assert long.cancelled()
    await tasks.finish(5)
    assert asyncio.get_running_loop().time() == 5


async def test_ended_waits_for_task_cleanup() -> None:
    cleared = False

    async def works() -> None:
        nonlocal cleared
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleared = True

    task = asyncio.ensure_future(works())
    await asyncio.sleep(0)
    await ended(task)
    assert cleared
    await ended(task)


async def test_unless_returns_result_of_finished_work() -> None:
    assert await unless(asyncio.Event(), asyncio.sleep(0, "found")) == "found"


async def test_unless_raises_error_of_failed_work() -> None:
    async def fails() -> None:
        raise ValueError("of all things")

    with pytest.raises(ValueError, match="of all things"):
        await unless(asyncio.Event(), fails())


@virtually
async def test_unless_cancels_work_when_stop_is_set() -> None:
    stop, cleared = asyncio.Event(), asyncio.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleared.set()

    asyncio.get_running_loop().call_later(60, stop.set)
    with pytest.raises(Stopped):
        await unless(stop, forever())
    assert cleared.is_set()
    assert len(asyncio.all_tasks()) == 1
