"""Crash tests: after a Job is killed at any point, the next one finishes or removes its work, and there are never two
servers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from remuda.lab.driver_conformance.subject import Subject
from remuda.lab.driver_conformance.worker import Worker, WorkerRequest, WorkerResponse
from remuda.providers.shared.drivers.spi import Order

_MOST_POINTS = 400


class _Jobs:
    def __init__(self, subject: Subject, worker: Worker) -> None:
        self._subject = subject
        self._worker = worker

    async def run(
        self, action: Literal["create", "remove"], order: Order, *, crash_at: str = "", kill_after: float = 0.0
    ) -> WorkerResponse:
        subject = self._subject
        driver = type(subject.act(order))
        request = WorkerRequest(
            driver=f"{driver.__module__}:{driver.__qualname__}",
            action=action,
            order=order,
            user_data=subject.user_data,
            credentials=subject.credentials,
            directory=str(subject.hosts),
            record=str(subject.directory / "records" / f"{order.uid}.json"),
            answer=str(subject.directory / "answer.json"),
            crash_at=crash_at,
            kill_after=kill_after,
        )
        answer = await self._worker.run(request)
        assert not answer.broken, answer.broken
        return answer

    async def well(self, action: Literal["create", "remove"], order: Order) -> WorkerResponse:
        answer = await self.run(action, order)
        assert not answer.error, f"{action} failed: {answer.error}"
        return answer


@asynccontextmanager
async def _jobs(subject: Subject) -> AsyncIterator[_Jobs]:
    worker = await Worker.start()
    try:
        yield _Jobs(subject, worker)
    finally:
        await worker.stop()


async def _killed_creates(subject: Subject, jobs: _Jobs) -> AsyncIterator[tuple[str, Order]]:
    """Yield orders whose create has just been killed, at each crash point in turn, then at some times."""
    for number in range(1, _MOST_POINTS):
        order = subject.order()
        answer = await jobs.run("create", order, crash_at=f"*@{number}")
        if not answer.killed:
            assert not answer.error, f"create failed: {answer.error}"
            assert number > 2, "no act of create is a step: nothing was killed"
            await jobs.well("remove", order)
            break
        yield f"at point {number}", order
    else:
        raise AssertionError(f"create passes more than {_MOST_POINTS} points")
    for share in subject.by_the_clock:
        order = subject.order()
        if (await jobs.run("create", order, kill_after=share * answer.seconds)).killed:
            yield f"after {share} of its time", order
        else:
            await jobs.well("remove", order)


async def _nothing_is_left(subject: Subject, where: str) -> None:
    left = list(await subject.things())
    assert not left, f"{where}: {left} is left"


class Kills:
    async def test_next_create_finishes_killed_create_with_one_server(self, subject: Subject) -> None:
        async with _jobs(subject) as jobs:
            async for where, order in _killed_creates(subject, jobs):
                answer = await jobs.well("create", order)
                assert answer.server is not None
                found = list(await subject.servers())
                assert found == [answer.server.id], f"killed {where}: there is {found}, and {answer.server.id} is told"
                await jobs.well("remove", order)
                await _nothing_is_left(subject, f"killed {where}")

    async def test_remove_cleans_up_after_killed_create(self, subject: Subject) -> None:
        async with _jobs(subject) as jobs:
            async for where, order in _killed_creates(subject, jobs):
                await jobs.well("remove", order)
                await _nothing_is_left(subject, f"killed {where}")

    async def test_next_remove_finishes_killed_remove(self, subject: Subject) -> None:
        async with _jobs(subject) as jobs:
            for number in range(1, _MOST_POINTS):
                order = subject.order()
                await jobs.well("create", order)
                answer = await jobs.run("remove", order, crash_at=f"*@{number}")
                if not answer.killed:
                    assert not answer.error, f"remove failed: {answer.error}"
                    assert number > 2, "no act of remove is a step: nothing was killed"
                    break
                await jobs.well("remove", order)
                await _nothing_is_left(subject, f"killed at point {number}")
            await _nothing_is_left(subject, "not killed")
