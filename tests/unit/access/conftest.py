"""A proxy on our engine, and a cluster it leads to, over TLS, all in the test's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.lab.far_cluster import FarCluster
from tests.lab.proxied import AuditLines, Proxied, proxied


@pytest.fixture
async def far(tmp_path: Path) -> AsyncIterator[FarCluster]:
    cluster = FarCluster(tmp_path / "far")
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
async def place(far: FarCluster, tmp_path: Path) -> AsyncIterator[Proxied]:
    async with proxied(tmp_path / "engine", api=far.address) as made:
        yield made


@pytest.fixture
def audit() -> Iterator[AuditLines]:
    with AuditLines() as lines:
        yield lines
