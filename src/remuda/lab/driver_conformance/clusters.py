"""Conformance tests for drivers that create infrastructure for a cluster as a whole: `ClusterConformance`, as
`Conformance` is for machines. A `ClusterSubject` inspects the infrastructure without the driver's help.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from remuda.lab.driver_conformance.worker import FileRecord, Worker, WorkerRequest, WorkerResponse
from remuda.providers.shared.drivers.spi import (
    BadOptions,
    ClusterDriver,
    ClusterInfrastructure,
    ClusterOrder,
    Context,
    DriverError,
)

_MOST_POINTS = 200

Run = Callable[..., Any]


class ClusterSubject:
    """Driver of cluster infrastructure under test, one per test: every test starts with empty infrastructure.
    `directory` is private to the test.
    """

    driver: ClassVar[type[ClusterDriver[Any]]]
    options: Mapping[str, Any] = {}
    bad_options: Mapping[str, Mapping[str, Any]] = {}  # option → options that are invalid because of it
    backends: Sequence[str] = ("192.0.2.1", "192.0.2.2")
    ports: Sequence[int] = (6443,)

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.said: list[str] = []
        self._numbers = itertools.count(1)

    async def things(self) -> Sequence[str]:
        """Return everything that exists, complete or not; empty if nothing is left."""
        raise NotImplementedError

    async def stands(self, order: ClusterOrder, made: ClusterInfrastructure) -> Sequence[str]:
        """Return the backends of the endpoint as the infrastructure itself reports them, sorted."""
        raise NotImplementedError

    def order(self, **changes: Any) -> ClusterOrder:
        """Return an order for a new cluster."""
        base = ClusterOrder(
            driver="", action="ensure", name=f"conformance-{next(self._numbers)}", namespace="default",
            cluster="conformance", uid=str(uuid.uuid4()), owner="0a3c5f8e-conformance", options=self.options,
            backends=self.backends, ports=self.ports,
        )  # fmt: skip
        return msgspec.structs.replace(base, **changes)

    def act(self, order: ClusterOrder) -> ClusterDriver[Any]:
        """Return a driver as a Job creates it: new, knowing only the recorded state."""
        options = msgspec.convert(dict(order.options), self.driver.options_type)
        context = Context(credentials={}, record=self.record(order), say=self.said.append, directory=self.hosts)
        return self.driver(options, context)

    def record(self, order: ClusterOrder) -> FileRecord:
        return FileRecord(self.directory / "records" / f"{order.uid}.json")

    @property
    def hosts(self) -> Path:
        path = self.directory / "hosts"
        path.mkdir(exist_ok=True, mode=0o700)
        return path


@asynccontextmanager
async def _jobs(subject: ClusterSubject) -> AsyncIterator[Run]:
    worker = await Worker.start()

    async def run(action: Literal["ensure", "remove"], order: ClusterOrder, crash_at: str = "") -> WorkerResponse:
        request = WorkerRequest(
            driver=f"{subject.driver.__module__}:{subject.driver.__qualname__}",
            action=action,
            cluster=order,
            credentials={},
            directory=str(subject.hosts),
            record=str(subject.directory / "records" / f"{order.uid}.json"),
            answer=str(subject.directory / "answer.json"),
            crash_at=crash_at,
        )
        answer = await worker.run(request)
        assert not answer.broken, answer.broken
        assert crash_at or not answer.error, f"{action} failed: {answer.error}"
        return answer

    try:
        yield run
    finally:
        await worker.stop()


async def _complaint(subject: ClusterSubject, order: ClusterOrder) -> str:
    try:
        await subject.act(order).check(order)
    except BadOptions as error:
        return str(error)
    return ""


async def _killed(subject: ClusterSubject, run: Run) -> AsyncIterator[tuple[int, ClusterOrder]]:
    """Yield orders whose `ensure` was just killed, each at the next crash point."""
    for number in range(1, _MOST_POINTS):
        order = subject.order()
        answer = await run("ensure", order, f"*@{number}")
        if not answer.killed:
            assert not answer.error, f"ensure failed: {answer.error}"
            assert number > 2, "no act of ensure is a step: nothing was killed"
            await run("remove", order)
            return
        yield number, order
    raise AssertionError(f"ensure passes more than {_MOST_POINTS} points")


class ClusterConformance:
    async def test_created_infrastructure_exists_and_removed_one_does_not(self, subject: ClusterSubject) -> None:
        order = subject.order()
        made = await subject.act(order).ensure(order)
        assert made.endpoint is not None
        assert made.endpoint.port == order.ports[0]
        assert not made.endpoint.host.startswith(("127.0.0.", "localhost", "::1"))
        assert list(await subject.things())
        assert list(await subject.stands(order, made)) == sorted(order.backends)
        await subject.act(order).remove(order)
        assert list(await subject.things()) == []

    async def test_repeated_ensure_changes_only_the_backends(self, subject: ClusterSubject) -> None:
        order = subject.order(backends=())
        first = await subject.act(order).ensure(order)
        things = sorted(await subject.things())
        fewer = msgspec.structs.replace(order, backends=subject.backends[:1])
        again = await subject.act(fewer).ensure(fewer)
        assert again == first
        assert sorted(await subject.things()) == things
        assert list(await subject.stands(fewer, again)) == list(subject.backends[:1])

    async def test_two_clusters_share_nothing(self, subject: ClusterSubject) -> None:
        one, other = subject.order(), subject.order()
        first, second = await subject.act(one).ensure(one), await subject.act(other).ensure(other)
        assert first.endpoint != second.endpoint
        assert first.id != second.id
        assert not first.network or first.network != second.network
        await subject.act(one).remove(one)
        assert list(await subject.stands(other, second)) == sorted(other.backends)

    async def test_infrastructure_of_another_cluster_with_same_name_is_not_touched(
        self, subject: ClusterSubject
    ) -> None:
        order = subject.order()
        made = await subject.act(order).ensure(order)
        other = msgspec.structs.replace(order, uid="11111111-other", namespace="elsewhere")
        with contextlib.suppress(DriverError):  # if names are unique there cannot be two
            await subject.act(other).ensure(other)
        await subject.act(other).remove(other)
        assert list(await subject.stands(order, made)) == sorted(order.backends)

    async def test_remove_of_missing_infrastructure_succeeds(self, subject: ClusterSubject) -> None:
        nothing = subject.order()
        await subject.act(nothing).remove(nothing)
        order = subject.order()
        await subject.act(order).ensure(order)
        await subject.act(order).remove(order)
        await subject.act(order).remove(order)
        assert list(await subject.things()) == []

    async def test_list_has_exactly_the_infrastructure_of_one_management_plane(self, subject: ClusterSubject) -> None:
        ours, theirs = subject.order(), subject.order(owner="somebody-else")
        made = await subject.act(ours).ensure(ours)
        await subject.act(theirs).ensure(theirs)
        found = await subject.act(ours).owned(ours.owner)
        assert [(one.id, one.name, dict(one.tags)) for one in found] == [(made.id, made.name, ours.tags)]
        assert list(await subject.act(ours).owned("nobody")) == []
        await subject.act(ours).remove(ours)
        assert list(await subject.act(ours).owned(ours.owner)) == []

    async def test_invalid_options_are_reported_before_anything_is_created(self, subject: ClusterSubject) -> None:
        for option, options in subject.bad_options.items():
            said = await _complaint(subject, subject.order(options=options))
            assert option in said, f"the complaint of a bad {option} is: {said or 'none'}"
        assert list(await subject.things()) == []

    async def test_next_ensure_finishes_killed_ensure(self, subject: ClusterSubject) -> None:
        async with _jobs(subject) as run:
            async for number, order in _killed(subject, run):
                answer = await run("ensure", order)
                assert list(await subject.stands(order, answer.made)) == sorted(order.backends), f"point {number}"
                await run("remove", order)
                left = list(await subject.things())
                assert not left, f"killed at point {number}: {left} is left"

    async def test_remove_cleans_up_after_killed_ensure(self, subject: ClusterSubject) -> None:
        async with _jobs(subject) as run:
            async for number, order in _killed(subject, run):
                await run("remove", order)
                left = list(await subject.things())
                assert not left, f"killed at point {number}: {left} is left"

    async def test_next_remove_finishes_killed_remove(self, subject: ClusterSubject) -> None:
        async with _jobs(subject) as run:
            for number in range(1, _MOST_POINTS):
                order = subject.order()
                await run("ensure", order)
                answer = await run("remove", order, f"*@{number}")
                if not answer.killed:
                    assert number > 2, "no act of remove is a step: nothing was killed"
                    break
                await run("remove", order)
                left = list(await subject.things())
                assert not left, f"killed at point {number}: {left} is left"
            assert list(await subject.things()) == []
