"""The balancer as the program it is: whom it chooses, and what becomes of connections when backends come and go."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.providers.shared.drivers import balancer, balancer_process
from remuda.providers.shared.drivers.balancer_process import Balancing
from tests.lab.balancers import Greeters, greeting, reached
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import free_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="addresses of 127.0.0.0/8 need Linux")

HERE = "127.0.62.9"


class BalancerHarness:
    def __init__(self, folder: Path, greeters: Greeters) -> None:
        self.folder = folder
        self.greeters = greeters
        self.balancing = Balancing(folder)

    async def configure(self, backends: list[str], drain: float = 30.0) -> None:
        config = {"address": HERE, "ports": [self.greeters.port], "backends": backends, "drainSeconds": drain}
        part = self.folder / "part"
        part.write_text(json.dumps(config))
        part.rename(self.folder / balancer.CONFIG)
        await self.until(lambda report: report.revision == balancer.revision(json.dumps(config).encode()))

    async def until(self, holds: Any) -> Any:
        async with asyncio.timeout(LIMIT_SECONDS):
            while (report := self.balancing.report()) is None or not holds(report):
                await asyncio.sleep(0.02)
        return report

    async def who(self) -> str:
        said, _, writer = await greeting(HERE, self.greeters.port)
        writer.transport.abort()
        return said


@pytest.fixture
async def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BalancerHarness]:
    monkeypatch.setattr(balancer_process, "_READY_SECONDS", LIMIT_SECONDS)
    async with Greeters(["127.0.62.1", "127.0.62.2"]).serving() as greeters:
        made = BalancerHarness(tmp_path, greeters)
        await made.balancing.ensure(HERE, [greeters.port], greeters.addresses)
        yield made
        await made.balancing.stop()


async def test_connections_are_shared_out_evenly(harness: BalancerHarness) -> None:
    await harness.until(lambda report: all(one.healthy for one in report.backends))
    held = [await greeting(HERE, harness.greeters.port) for _ in range(6)]
    assert sorted(who for who, _, _ in held) == ["127.0.62.1"] * 3 + ["127.0.62.2"] * 3
    report = await harness.until(lambda report: sum(one.connections for one in report.backends) == 6)
    assert [one.connections for one in report.backends] == [3, 3]
    for _, _, writer in held:
        writer.close()
    await harness.until(lambda report: sum(one.connections for one in report.backends) == 0)


async def test_dead_backend_is_skipped_and_reused_when_back(harness: BalancerHarness) -> None:
    await harness.until(lambda report: all(one.healthy for one in report.backends))
    await harness.greeters.stop("127.0.62.1")
    assert [await harness.who() for _ in range(4)] == ["127.0.62.2"] * 4
    await harness.greeters.start("127.0.62.1")
    assert await reached(HERE, harness.greeters.port, 2) == ["127.0.62.1", "127.0.62.2"]


async def test_half_closed_connection_still_receives_data(harness: BalancerHarness) -> None:
    _, reader, writer = await greeting(HERE, harness.greeters.port)
    sent = os.urandom(3_000_000)

    async def send() -> None:
        writer.write(sent)
        await writer.drain()
        writer.write_eof()

    sending = asyncio.ensure_future(send())
    assert await asyncio.wait_for(reader.read(-1), LIMIT_SECONDS) == sent + b"bye"
    await sending


async def test_removed_backend_drains_existing_connections(harness: BalancerHarness) -> None:
    await harness.configure(["127.0.62.1"])
    who, reader, writer = await greeting(HERE, harness.greeters.port)
    assert who == "127.0.62.1"
    await harness.configure(["127.0.62.2"], drain=LIMIT_SECONDS)
    assert [await harness.who() for _ in range(3)] == ["127.0.62.2"] * 3
    writer.write(b"still here")
    assert await reader.readexactly(10) == b"still here"
    await harness.configure(["127.0.62.1"])  # or else the drain that has begun would go on
    await harness.configure(["127.0.62.2"], drain=0.1)
    try:
        assert await asyncio.wait_for(reader.read(), LIMIT_SECONDS) == b""
    except ConnectionResetError:
        pass  # cut, as it was to be


async def test_connections_close_at_once_without_backends(harness: BalancerHarness) -> None:
    await harness.configure([])
    assert await harness.who() == ""


async def test_unreadable_config_is_reported_and_ignored(harness: BalancerHarness) -> None:
    (harness.folder / balancer.CONFIG).write_text("{")
    await harness.until(lambda report: "JSONDecodeError" in report.error)
    assert await harness.who() in harness.greeters.addresses


async def test_second_balancer_on_same_folder_exits(harness: BalancerHarness) -> None:
    second = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", balancer.__file__, str(harness.folder))
    assert await asyncio.wait_for(second.wait(), LIMIT_SECONDS) == 0
    assert harness.balancing.runs()


async def test_balancer_runs_with_standard_library_only(tmp_path: Path) -> None:
    """-S leaves out every package that is installed."""
    (tmp_path / balancer.CONFIG).write_text(json.dumps({"address": HERE, "ports": [free_port()], "backends": []}))
    process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", balancer.__file__, str(tmp_path))
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not (tmp_path / balancer.STATUS).exists():
                await asyncio.sleep(0.02)
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), LIMIT_SECONDS) == 0
