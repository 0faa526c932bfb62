"""One fleet in one process, as the product runs: engine (durable), core controllers, and simulated providers.

Real: the API server with its disk, admission and validation; every core controller; provider controllers of the v1beta2
contract. Simulated: servers (a model that needs `boot_seconds`), the workload clusters' APIs and Nodes (in memory).
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import uvloop

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.apiserver.storage.types import StoreEvent
from remuda.app.process import tune
from remuda.capi import admission
from remuda.capi.definitions import definitions as core_definitions
from remuda.capi.setup import add_controllers
from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube import conditions
from remuda.kube.objects import Key, Object
from remuda.lab.simulator.blueprint import Blueprint
from remuda.lab.simulator.cloud import MemoryCloud, made_twice
from remuda.lab.simulator.kinds import definitions as provider_definitions
from remuda.lab.simulator.setup import add_providers
from remuda.lab.simulator.types import MachineScript
from remuda.lab.simulator.workload_registry import ModelWorkloads
from remuda.runtime.definitions import install
from remuda.runtime.manager import Manager

_CREATORS = 16  # users applying at the same time
_QUIET_SECONDS = 5.0
_LIMIT_SECONDS = 900.0


class Counts:
    """Every write the store has committed."""

    def __init__(self) -> None:
        self.by_table: Counter[str] = Counter()
        self.last = time.monotonic()

    def __call__(self, events: Sequence[StoreEvent]) -> None:
        self.by_table.update(event.entry.table for event in events)
        self.last = time.monotonic()


class Progress:
    """Which Clusters and Machines are Available."""

    def __init__(self, manager: Manager) -> None:
        self.available: dict[str, set[Key]] = {"Cluster": set(), "Machine": set()}
        self.changed = asyncio.Event()
        manager.caches.of(CLUSTER).listen(self._seen)
        manager.caches.of(MACHINE).listen(self._seen)

    def _seen(self, before: Object | None, after: Object | None, initial: bool) -> None:
        if after is None:
            return
        found = self.available[after.kind]
        if conditions.is_true(after.status.conditions, "Available"):  # type: ignore[attr-defined]
            found.add(after.key)
            self.changed.set()
        else:
            found.discard(after.key)

    async def until(self, clusters: int, machines: int) -> None:
        async with asyncio.timeout(_LIMIT_SECONDS):
            while len(self.available["Cluster"]) < clusters or len(self.available["Machine"]) < machines:
                self.changed.clear()
                await self.changed.wait()


async def fleet(clusters: int, boot_seconds: float, idle_seconds: float, folder: Path) -> dict[str, object]:
    server = await ApiServer.start(ServerSettings(data_dir=folder, port=0), admission=admission.FUNCTIONS)
    counts = Counts()
    manager = Manager(server.client(), name="fleet")
    cloud, workloads = MemoryCloud(), ModelWorkloads()
    await install(server.client(), [*core_definitions(), *provider_definitions()])
    progress = Progress(manager)
    add_controllers(manager, dial=workloads.dial)
    add_providers(manager, cloud, workloads)
    await manager.start()
    manager.lead()
    server.store.subscribe(counts)
    started, cpu = time.monotonic(), time.process_time()
    applied = await _create(server, clusters, boot_seconds)
    created = time.monotonic() - started
    await progress.until(clusters, clusters * 3)
    seconds, busy = time.monotonic() - started, time.process_time() - cpu
    await _settled(manager, counts)
    total, runs = sum(counts.by_table.values()), manager.ledger.reconciles
    idle = await _idle_cpu(idle_seconds)
    result = {
        "clusters": clusters,
        "machines": clusters * 3,
        "created_seconds": created,
        "seconds": seconds,
        "cpu_seconds": busy,
        "writes": total,
        "writes_per_machine": (total - applied) / (clusters * 3),
        "applied_per_machine": applied / (clusters * 3),
        "by_table": {table: count / (clusters * 3) for table, count in counts.by_table.most_common()},
        "reconciles_per_machine": runs / (clusters * 3),
        "reconciles_while_idle": manager.ledger.reconciles - runs,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "idle_cpu_percent": idle,
        "writes_while_idle": sum(counts.by_table.values()) - total,
        "servers_made_twice": len(made_twice(cloud.journal)),
        "violations": len(workloads.violations),
    }
    await manager.stop()
    await workloads.close()
    await server.stop()
    return result


async def _create(server: ApiServer, clusters: int, boot_seconds: float) -> int:
    """What users do: apply seven objects per cluster. Returns how many that were."""
    client = server.client(field_manager="kubectl")
    script = MachineScript(boot_seconds=boot_seconds)
    blueprints = iter(
        Blueprint(name=f"c-{number:04d}", control_planes=1, workers=2, machines=script) for number in range(clusters)
    )

    async def user() -> int:
        applied = 0
        for blueprint in blueprints:
            for target, obj in blueprint.objects():
                await client.create(target, blueprint.namespace, obj)
                applied += 1
        return applied

    return sum(await asyncio.gather(*(user() for _ in range(_CREATORS))))


async def _settled(manager: Manager, counts: Counts) -> None:
    """Until nothing is written and no controller has anything to look at any more."""
    runs, since = manager.ledger.reconciles, time.monotonic()
    while time.monotonic() - max(since, counts.last) < _QUIET_SECONDS:
        await asyncio.sleep(1)
        if manager.ledger.reconciles != runs:
            runs, since = manager.ledger.reconciles, time.monotonic()


async def _idle_cpu(seconds: float) -> float:
    began, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    return 100 * (time.process_time() - cpu) / (time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet.fleet")
    parser.add_argument("--clusters", type=int, required=True)
    parser.add_argument("--boot-seconds", type=float, default=1.0)
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    parser.add_argument("--profile", type=Path)
    chosen = parser.parse_args()
    tune()
    with tempfile.TemporaryDirectory(prefix="remuda-fleet-", dir=os.environ.get("TMPDIR")) as folder:
        profile = cProfile.Profile() if chosen.profile else None
        if profile:
            profile.enable()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            result = runner.run(fleet(chosen.clusters, chosen.boot_seconds, chosen.idle_seconds, Path(folder)))
        if profile:
            profile.disable()
            profile.dump_stats(chosen.profile)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
