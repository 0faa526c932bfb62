"""Tasks with an owner."""

from __future__ import annotations

import asyncio
import logging

import pytest

from remuda.runtime.tasks import Stopped, Tasks, ended, unless
from tests.unit.runtime.things import virtually


async def test_all_of_it_ends_with_its_owner() -> None:
    tasks = Tasks()
    forever = tasks.spawn("forever", asyncio.Event().wait())
    assert (len(tasks), forever.get_name()) == (1, "forever")
    await tasks.close()
    assert forever.cancelled()
    assert len(tasks) == 0


async def test_an_error_nobody_waits_for_is_logged_with_the_name_of_the_task(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("of all things")

    tasks = Tasks()
    await asyncio.wait((tasks.spawn("the culprit", fails()),))
    await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records] == ["task the culprit failed"]
    assert caplog.records[0].levelno == logging.ERROR
    assert "of all things" in caplog.text


@virtually
async def test_what_is_under_way_may_come_to_its_end_but_not_for_ever() -> None:
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


async def test_ending_a_task_waits_until_it_has_cleared_up() -> None:
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


async def test_work_that_is_done_in_time_gives_what_it_found() -> None:
    assert await unless(asyncio.Event(), asyncio.sleep(0, "found")) == "found"


async def test_work_that_fails_says_so_itself() -> None:
    async def fails() -> None:
        raise ValueError("of all things")

    with pytest.raises(ValueError, match="of all things"):
        await unless(asyncio.Event(), fails())


@virtually
async def test_work_is_given_up_when_the_end_comes_first() -> None:
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
