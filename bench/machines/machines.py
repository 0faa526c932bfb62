"""Thousands of machines in one process: from a MachineDeployment to hosts whose agents follow their plans.

Real: the API server with its disk, admission and RBAC; Cluster API's controllers; the bootstrap and machine providers
with their Secrets, accounts, tokens and Jobs; the registration of every host with its own token. Simulated: servers
(driver `sim`), Jobs' programs (tasks of this process instead of processes), agents (models that follow their Secrets).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gzip
import json
import os
import re
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

import msgspec
import uvloop

from bench.fleet.fleet import Counts
from remuda.agent.plan import Instruction
from remuda.agent.rules import Result
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.app import controllers
from remuda.app.process import tune
from remuda.capi import setup as core
from remuda.capi.definitions import definitions as core_definitions
from remuda.jobs.in_process import InProcess
from remuda.jobs.runner import JobRunner
from remuda.kube.client import Client, Target
from remuda.kube.core import SECRETS
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key
from remuda.lab.simulator import agents as model
from remuda.providers import setup as providers
from remuda.providers.bootstrap.registration import RegistrationService
from remuda.providers.machine import job
from remuda.providers.shared import names, secrets
from remuda.providers.shared.drivers import sim
from remuda.providers.shared.drivers.simcloud import SimCloud, SimServer
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.machine import DriverMachine, machine_kind
from remuda.runtime.definitions import install
from remuda.runtime.manager import Manager

NAMESPACE = "default"
SIM_MACHINE = machine_kind("sim")
_SCRIPT = re.compile(rb"content: ['\"]?([A-Za-z0-9+/=]+)")  # in the cloud-config: gzip, base64
_TOKEN = re.compile(rb"CATTLE_TOKEN=['\"]?([^'\"\n]+)")
_LIMIT_SECONDS = 1800.0
_QUIET_SECONDS = 5.0
_WRITERS = 16


class Hosts:
    """What runs on a server that has booted: its agent's first call, with the token in its user data."""

    def __init__(self, registration: RegistrationService) -> None:
        self._registration = registration
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(32)
        self.connected = 0

    def booted(self, server: SimServer) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(server))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def removed(self, server: SimServer) -> None:
        pass

    async def _connect(self, server: SimServer) -> None:
        script = _SCRIPT.search(server.user_data)
        assert script is not None, server.user_data
        found = _TOKEN.search(gzip.decompress(base64.b64decode(script[1])))
        assert found is not None, "the script has no token"
        headers = {"x-cattle-id": f"{server.number:063x}", "x-cattle-node-name": server.name}
        async with self._turns:
            await self._registration.connect(found[1].decode(), headers)
        self.connected += 1


class Stopwatch(model.InstantHost):
    """Servers on which everything works; it notes when each began with its plan."""

    def __init__(self) -> None:
        self.written: dict[Key, float] = {}
        self.started: dict[Key, float] = {}

    def run(self, agent: Key, instruction: Instruction, attempt: int) -> Result:
        self.started.setdefault(agent, time.perf_counter())
        return super().run(agent, instruction, attempt)


async def measure(machines: int, clusters: int, boot_seconds: float, idle_seconds: float, folder: Path) -> Any:
    server = await ApiServer.start(ServerSettings(data_dir=folder, port=0), admission=controllers.ADMISSION)
    counts = Counts()
    client = server.client()
    await install(client, [*core_definitions(), *providers.definitions()])
    manager = Manager(client, name="machines")
    core.add_controllers(manager)
    site = Site(server_url=server.url, ca_pem=server.pki.ca_certificate_pem)
    settings = msgspec.structs.replace(controllers.job_settings(folder, server.url, site.ca_pem), concurrency=32)
    added = providers.add(manager, providers.ProviderSettings(site=site, machine=MachineSettings(job_key=settings.key)))
    JobRunner(manager, settings, InProcess(job.in_process(client, settings.hosts)))
    cloud = sim.clouds["default"] = SimCloud(keeps_user_data=False)
    assert added.registration is not None
    hosts = Hosts(added.registration)
    cloud.listen(hosts)
    stopwatch = Stopwatch()
    agents = Manager(server.client(field_manager="agents"), name="agents", interval=0.0)
    model.Agents(agents, stopwatch, label_selector=secrets.LABEL)
    for one in (manager, agents):
        await one.start()
        one.lead()
    server.store.subscribe(counts)
    await _register_driver(client)
    began, cpu = time.monotonic(), time.process_time()
    await _create(client, machines, clusters, boot_seconds)
    await _until_ready(manager, machines)
    seconds, busy = time.monotonic() - began, time.process_time() - cpu
    await _quiet(counts)
    writes = sum(counts.by_table.values())
    idle = await _idle(idle_seconds)
    while_idle = sum(counts.by_table.values()) - writes
    latencies = await _plans(client, agents, stopwatch)
    cut = quantiles(latencies, n=100, method="inclusive")
    result = {
        "machines": machines,
        "clusters": clusters,
        "seconds": seconds,
        "cpu_seconds": busy,
        "connected": hosts.connected,
        "servers": len(await cloud.servers()),
        "writes_per_machine": writes / machines,
        "by_table": {table: count / machines for table, count in counts.by_table.most_common(14)},
        "idle_cpu_percent": idle,
        "writes_while_idle": while_idle,
        "plan_p50_ms": cut[49] * 1000,
        "plan_p99_ms": cut[98] * 1000,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    for one in (agents, manager):
        await one.stop()
    cloud.close()
    await server.stop()
    return result


async def _register_driver(client: Client) -> None:
    driver = {
        "apiVersion": names.MANAGEMENT_API_VERSION,
        "kind": "NodeDriver",
        "metadata": {"name": "sim"},
        "spec": {"displayName": "sim", "url": "local://", "active": True},
    }
    await client.create(Target(names.MANAGEMENT_API_VERSION, "nodedrivers"), "", driver)
    async with asyncio.timeout(30):
        while True:
            try:
                await client.list(SIM_MACHINE.target, NAMESPACE)
                return
            except StatusError:
                await asyncio.sleep(0.1)


async def _create(client: Client, machines: int, clusters: int, boot_seconds: float) -> None:
    shares = [machines // clusters + (number < machines % clusters) for number in range(clusters)]
    for number, replicas in enumerate(shares):
        for target, obj in _objects(f"c-{number:03d}", replicas, boot_seconds):
            await client.create(target, NAMESPACE, obj)


def _objects(name: str, replicas: int, boot_seconds: float) -> list[tuple[Target, dict[str, Any]]]:
    def obj(api_version: str, kind: str, plural: str, spec: dict[str, Any]) -> tuple[Target, dict[str, Any]]:
        made = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        return Target(api_version, plural), made

    capi, rke, machine = "cluster.x-k8s.io/v1beta2", names.API_VERSION, names.MACHINE_API_VERSION

    def ref(group: str, kind: str) -> dict[str, str]:
        return {"apiGroup": group, "kind": kind, "name": name}

    template = {
        "clusterName": name,
        "bootstrap": {"configRef": ref(names.GROUP, "RKEBootstrapTemplate")},
        "infrastructureRef": ref(names.MACHINE_GROUP, "SimMachineTemplate"),
    }
    return [
        obj(rke, "RKECluster", "rkeclusters", {}),
        obj(capi, "Cluster", "clusters", {"infrastructureRef": ref(names.GROUP, "RKECluster")}),
        obj(rke, "RKEBootstrapTemplate", "rkebootstraptemplates", {"clusterName": name, "template": {"spec": {}}}),
        obj(
            machine,
            "SimMachineTemplate",
            "simmachinetemplates",
            {"clusterName": name, "template": {"spec": {"bootSeconds": boot_seconds}}},
        ),
        obj(
            capi,
            "MachineDeployment",
            "machinedeployments",
            {
                "clusterName": name,
                "replicas": replicas,
                "selector": {"matchLabels": {"pool": name}},
                "template": {"metadata": {"labels": {"pool": name}}, "spec": template},
            },
        ),
    ]


async def _until_ready(manager: Manager, machines: int) -> None:
    """Every server runs, and its agent has called."""
    ready: set[Key] = set()
    changed = asyncio.Event()

    def seen(before: DriverMachine | None, after: DriverMachine | None, initial: bool) -> None:
        if after is not None and after.status.initialization.provisioned:
            ready.add(after.key)
            changed.set()

    manager.caches.of(SIM_MACHINE).listen(seen)
    told = time.monotonic()
    async with asyncio.timeout(_LIMIT_SECONDS):
        while len(ready) < machines:
            changed.clear()
            await changed.wait()
            if time.monotonic() - told > 10:
                told = time.monotonic()
                print(f"{len(ready)} of {machines} machines are ready", file=sys.stderr, flush=True)


async def _quiet(counts: Counts) -> None:
    while time.monotonic() - counts.last < _QUIET_SECONDS:
        await asyncio.sleep(1)


async def _idle(seconds: float) -> float:
    began, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    return 100 * (time.process_time() - cpu) / (time.monotonic() - began)


async def _plans(client: Client, agents: Manager, stopwatch: Stopwatch) -> list[float]:
    """From the moment a plan is stored until its agent begins with it: every agent once, so many a second."""
    found = agents.caches.of(model.SECRET).all()
    keys = [secret.key for secret in found if secret.type == names.PLAN_TYPE]
    stopwatch.started.clear()
    plan = json.dumps({"instructions": [{"name": "greet", "command": "echo", "args": ["hello"]}]}).encode()
    patch = {"data": {"plan": base64.b64encode(plan).decode()}}
    waiting = iter(keys)

    async def write() -> None:
        for key in waiting:
            await client.patch(SECRETS, *key, patch)
            stopwatch.written[key] = time.perf_counter()
            await asyncio.sleep(_WRITERS / 200)  # all of them together: 200 a second

    await asyncio.gather(*(write() for _ in range(_WRITERS)))
    async with asyncio.timeout(60):
        while len(stopwatch.started) < len(keys):
            await asyncio.sleep(0.1)
    return [max(0.0, stopwatch.started[key] - stopwatch.written[key]) for key in keys]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.machines.machines")
    parser.add_argument("--machines", type=int, required=True)
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--boot-seconds", type=float, default=1.0)
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    chosen = parser.parse_args()
    tune()
    with (
        tempfile.TemporaryDirectory(prefix="remuda-machines-", dir=os.environ.get("TMPDIR")) as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        result = runner.run(
            measure(chosen.machines, chosen.clusters, chosen.boot_seconds, chosen.idle_seconds, Path(folder))
        )
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
