"""What the driver process makes for a cluster: conformant, and a real balancer that outlives whoever started it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from remuda.providers.shared.drivers import balancer, balancer_process, proc, process
from remuda.providers.shared.drivers.process.cluster import ProcessCluster
from remuda.providers.shared.drivers.spi import ClusterInfrastructure, ClusterOrder
from tests.lab.balancers import Greeters, reached
from tests.lab.conformance import ClusterConformance, ClusterSubject
from tests.lab.drivers import Processes, processes_below
from tests.lab.limits import LIMIT_SECONDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process hosts need Linux")

BACKENDS = ("127.0.61.1", "127.0.61.2")


class Balancers(ClusterSubject):
    driver = ProcessCluster
    bad_options: Mapping[str, Mapping[str, Any]] = {"address": {"address": "192.0.2.1"}}
    backends = BACKENDS

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(directory)
        self.ports = (port,)

    async def things(self) -> list[str]:
        folder = self.hosts / "process"
        left = {path.name for path in folder.iterdir()} - {".lock"} if folder.exists() else set()
        return sorted(left) + [f"process {pid}" for pid in processes_below(self.hosts)]

    async def stands(self, order: ClusterOrder, made: ClusterInfrastructure) -> list[str]:
        assert made.endpoint is not None
        return await reached(made.endpoint.host, made.endpoint.port, len(order.backends))


@pytest.fixture
async def subject(tmp_path: Path) -> AsyncIterator[Balancers]:
    async with Greeters(BACKENDS).serving() as greeters:
        yield Balancers(tmp_path, greeters.port)
    for pid in processes_below(tmp_path):
        os.kill(pid, signal.SIGKILL)


class TestProcessCluster(ClusterConformance):
    pass


async def test_hosts_and_balancers_never_share_an_address_and_are_not_taken_for_each_other(
    subject: Balancers, tmp_path: Path
) -> None:
    hosts = Processes(tmp_path)
    order = subject.order()
    made = await subject.act(order).ensure(order)
    assert made.endpoint is not None
    machine = hosts.order(name="a-host", owner=order.owner, options={"address": made.endpoint.host})
    with pytest.raises(process.DriverError, match="belongs to another host"):
        await hosts.act(machine).create(machine, hosts.user_data)
    assert list(await hosts.act(machine).owned(order.owner)) == []


async def test_killed_balancer_restarts_at_same_address(subject: Balancers) -> None:
    order = subject.order()
    made = await subject.act(order).ensure(order)
    for pid in processes_below(subject.hosts):
        os.kill(pid, signal.SIGKILL)
    (lock,) = subject.hosts.rglob(balancer.LOCK)
    while processes_below(subject.hosts) or proc.is_locked(lock):  # a process that ends loses its environment first
        await asyncio.sleep(0.01)
    again = await subject.act(order).ensure(order)
    assert again == made
    assert await subject.stands(order, again) == list(BACKENDS)


async def test_port_in_use_is_reported(subject: Balancers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balancer_process, "_PATIENCE_SECONDS", 0.0)
    async with Greeters(["127.0.61.9"]).serving() as somebody:
        order = subject.order(options={"address": "127.0.61.9"}, ports=(somebody.port,))
        with pytest.raises(process.DriverError, match=r"cannot listen at 127\.0\.61\.9.*in use"):
            await subject.act(order).ensure(order)
    monkeypatch.setattr(
        balancer_process, "_PATIENCE_SECONDS", LIMIT_SECONDS
    )  # the old error stands until it has tried again
    monkeypatch.setattr(balancer_process, "_READY_SECONDS", LIMIT_SECONDS)
    await subject.act(order).ensure(order)
