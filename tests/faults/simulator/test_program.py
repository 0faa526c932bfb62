"""The simulated provider as a process of its own: killed and started again, and nothing is made twice or left over."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.capi import admission
from remuda.capi.definitions import definitions
from remuda.capi.setup import add_controllers
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT
from remuda.kube import conditions
from remuda.lab.simulator.blueprint import Blueprint
from remuda.lab.simulator.cloud import made_twice
from remuda.lab.simulator.file_cloud import read_journal
from remuda.lab.simulator.kinds import FAMILIES
from remuda.runtime.definitions import install
from remuda.runtime.manager import Manager
from tests.lab.limits import LIMIT_SECONDS


class Lab:
    """An engine and the core controllers in this process, the provider in another."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.client = server.client()
        self.cloud = folder / "cloud"
        self._kubeconfig = server.kubeconfig
        self._changed = asyncio.Event()
        self.manager = Manager(server.client())
        self.process: asyncio.subprocess.Process | None = None
        server.store.subscribe(lambda events: self._changed.set())

    async def start_provider(self) -> None:
        arguments = ("-m", "remuda.lab.simulator", "--kubeconfig", str(self._kubeconfig), "--cloud", str(self.cloud))
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=pipe)
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), LIMIT_SECONDS)
        assert b"ready" in line

    async def end_provider(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), LIMIT_SECONDS)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def available(self, count: int) -> bool:
        cluster = self.manager.caches.of(CLUSTER).get("default", "c")
        machines = self.manager.caches.of(MACHINE).all()
        ready = [one for one in machines if conditions.is_true(one.status.conditions, "Available")]
        well = cluster is not None and conditions.is_true(cluster.status.conditions, "Available")
        return well and len(ready) == len(machines) == count


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path / "engine", port=0), admission=admission.FUNCTIONS)
    lab = Lab(server, tmp_path)
    await install(lab.client, definitions())
    add_controllers(lab.manager)
    await lab.manager.start()
    lab.manager.lead()
    await lab.start_provider()
    yield lab
    await lab.end_provider(signal.SIGKILL) if lab.process and lab.process.returncode is None else None
    await lab.manager.stop()
    await server.stop()


async def test_killed_provider_resumes_without_duplicate_servers(lab: Lab) -> None:
    for target, obj in Blueprint(name="c", workers=1).objects():
        await lab.client.create(target, "default", obj)
    await lab.until(lambda: len(lab.manager.caches.of(MACHINE)) == 2)
    await lab.end_provider(signal.SIGKILL)
    await lab.start_provider()
    await lab.until(lambda: lab.available(2))

    await lab.end_provider(signal.SIGKILL)
    await lab.client.patch(MACHINE_DEPLOYMENT.target, "default", "c-workers", {"spec": {"replicas": 2}})
    await lab.start_provider()
    await lab.until(lambda: lab.available(3))
    journal = read_journal(lab.cloud)
    assert made_twice(journal) == []
    assert [entry.event for entry in journal] == ["create"] * 3

    await lab.client.delete(CLUSTER.target, "default", "c")
    await lab.until(lambda: len(lab.manager.caches.of(CLUSTER)) == 0)
    journal = read_journal(lab.cloud)
    assert sorted(entry.event for entry in journal) == ["create"] * 3 + ["remove"] * 3
    for family in FAMILIES:
        assert (await lab.client.list(family.machine.target)).items == []
    assert not list((lab.cloud / "workloads").glob("*/c"))
    assert await lab.end_provider(signal.SIGTERM) == 0
