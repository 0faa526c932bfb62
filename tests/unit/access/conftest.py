"""A proxy on our engine, and a cluster it leads to, over TLS, all in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.fake_workload_cluster import FakeWorkloadCluster
from tests.lab.proxied import AuditLines, ProxiedCluster, proxied

_STILL_SECONDS = 0.1


async def until_still(moved: Callable[[], int]) -> None:
    """Wait until a count of bytes has stopped growing.

    A pause of the machine may end the wait too early. Fewer bytes have been written then, so no test fails for it.
    """
    before = -1
    while before != moved():
        before = moved()
        await asyncio.sleep(_STILL_SECONDS)


@pytest.fixture
async def workload_cluster(tmp_path: Path) -> AsyncIterator[FakeWorkloadCluster]:
    cluster = FakeWorkloadCluster(tmp_path / "far")
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
async def proxied_cluster(workload_cluster: FakeWorkloadCluster, tmp_path: Path) -> AsyncIterator[ProxiedCluster]:
    async with proxied(tmp_path / "engine", api=workload_cluster.address) as made:
        yield made


@pytest.fixture
def audit() -> Iterator[AuditLines]:
    with AuditLines() as lines:
        yield lines
