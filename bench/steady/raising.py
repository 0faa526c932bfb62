"""A data directory with a fleet in it, as the product leaves it when the last cluster has become ready.

    python -m bench.steady.raising FOLDER --scratch /dev/shm/empty --clusters 500 --patterns 6

Real: the engine with its disk, and all controllers of `remuda up`, so every object is one they have made, or a copy of
one (`copying`): making 5,000 machines takes 20 minutes of processor time. Simulated: servers, agents, workload
clusters (models) and time, which jumps over the waiting. What the hosts need to play their part later is put beside
the data (`world`).
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.lab.ports import free_port

from bench.report import Broken
from bench.steady.copying import multiply
from bench.steady.world import DATA, WORLD, Host, Known, Workload, address, name, write
from remuda.access import setup as access_setup
from remuda.access.setup import allow_own_tokens
from remuda.agent.plan import parse
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.apiserver.storage.types import StoreEvent
from remuda.app import controllers
from remuda.app.access import AccessServices, embedded
from remuda.app.process import tune
from remuda.capi import setup as core
from remuda.capi.names import CLUSTER_NAME
from remuda.jobs.in_process import InProcess
from remuda.jobs.runner import JobRunner
from remuda.kube import conditions
from remuda.kube.core import SECRET, SECRETS, Secret
from remuda.kube.objects import Key, ObjectMeta
from remuda.lab.simulator import loop as virtual
from remuda.lab.simulator.declared import NAMESPACE, DeclaredWorld, pool
from remuda.providers import setup as providers
from remuda.providers.controlplane.artefacts import Artefacts
from remuda.providers.machine import job
from remuda.providers.shared import plan_access
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.names import plan_secret as plan_secret_name
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from remuda.provisioning import setup as provisioning
from remuda.runtime.manager import Manager

MACHINES = 10  # of each cluster
_EARLIER_SECONDS = 6 * 3600.0  # so long ago the simulation begins: nothing of it may lie in the future
_LOOK_SECONDS = 15.0
_TUNNEL_TOKEN = "/tunnel/token"
_PATIENCE_SECONDS = 3600.0  # simulated


def servers(number: int) -> int:
    """Of three clusters one has one server, one two and one three: as many tunnels."""
    return number % 3 + 1


def pools(number: int) -> list[dict[str, Any]]:
    count = servers(number)
    return [
        pool("servers", count, "etcd", "controlPlane"),
        pool("workers", MACHINES - count, "worker"),
    ]


class Fleet(DeclaredWorld):
    """With all controllers that `remuda up` runs, set as it sets them."""

    def __init__(self, server: ApiServer, data: Path) -> None:
        self._data = data
        super().__init__(server, boot_seconds=5.0)

    def _new_manager(self) -> Manager:
        server, data = self._server, self._data
        manager = Manager(server.client(), name="fleet")
        site = Site(server_url=server.url, ca_pem=server.pki.ca_certificate_pem)
        remote = core.add_controllers(manager, dial=self.herd.dial)
        provisioning.add(manager)
        doors = AccessServices(manager, site, embedded(server), controllers.EVERY)
        doors.add(manager, remote)
        settings = msgspec.structs.replace(controllers.job_settings(data, site.server_url, site.ca_pem), concurrency=32)
        wanted = providers.ProviderSettings(
            site=site,
            machine=MachineSettings(job_key=settings.key),
            artefacts=Artefacts(data / "artefacts"),
            tunnels=True,
            proxied=doors.proxied,
        )
        added = providers.add(manager, wanted, remote=remote)
        assert added.registration is not None
        self.registration = added.registration
        JobRunner(manager, settings, InProcess(job.in_process(server.client(), settings.hosts)))
        return manager

    def _definitions(self) -> list[dict[str, Any]]:
        return [*super()._definitions(), *access_setup.definitions()]

    def says_ready(self, cluster: str) -> bool:
        found = self.declared(cluster)
        return found is not None and conditions.is_true(found.status.conditions, "Ready")

    def _committed(self, events: Sequence[StoreEvent]) -> None:
        """Nobody judges, and nothing is remembered of half a million writes."""
        self._changed.set()


async def _raise(folder: Path, count: int) -> None:
    """Time waits for each write of the store."""
    data = folder / DATA
    loop = asyncio.get_running_loop()
    assert isinstance(loop, virtual.VirtualLoop)
    started: list[ApiServer] = []
    loop.stand_still_while(lambda: not started or started[0].store.in_flight > 0)
    server = await ApiServer.start(ServerSettings(data_dir=data, port=free_port()), admission=controllers.ADMISSION)
    started.append(server)
    began = time.monotonic()
    try:
        world = Fleet(server, data)
        await world.start()
        await allow_own_tokens(server.client())
        await controllers.register_drivers(server.client(), controllers.EVERY)
        await _ready(world, range(count))
        print(f"{count} clusters, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        await asyncio.sleep(30)  # what is said late
        await _leave_behind(world, folder, count, server.url)
        await world.stop()
    finally:
        await server.stop()


async def _ready(world: Fleet, numbers: range) -> None:
    for number in numbers:
        await world.declare(name(number), pools(number))
    waiting = [name(number) for number in numbers]
    until = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
    while waiting:
        await asyncio.sleep(_LOOK_SECONDS)
        waiting = [one for one in waiting if not world.says_ready(one) or world.unlike(one)]
        if waiting and asyncio.get_running_loop().time() > until:
            raise Broken(f"{waiting[0]} is not ready: {'; '.join(world.unlike(waiting[0]))}; {world.waits()}")


async def _leave_behind(world: Fleet, folder: Path, count: int, url: str) -> None:
    """What is outside the manager: the cloud's servers, and what the hosts know."""
    secrets = {
        secret.metadata.name: secret
        for secret in map(SECRET.decode, (await world.client.list(SECRETS, NAMESPACE)).items)
    }
    clusters = []
    for number in range(count):
        authority = secrets[f"{name(number)}-ca"].data
        nodes = await world.herd.cluster(Key(NAMESPACE, name(number))).nodes()
        clusters.append(
            Workload(name(number), address(number), authority["tls.crt"], authority["tls.key"], list(nodes.values()))
        )
    bootstraps = (await world.client.list(RKE_BOOTSTRAP.target, NAMESPACE)).items
    hosts = [_host(one.metadata, secrets) for one in map(RKE_BOOTSTRAP.decode, bootstraps)]
    write(folder, Known(url, clusters, hosts), await world.servers.servers())


def _host(bootstrap: ObjectMeta, secrets: Mapping[str, Secret]) -> Host:
    plan_secret = plan_secret_name(bootstrap.name)
    token = secrets[plan_access.token_secret(bootstrap.name)].data[plan_access.TOKEN_KEY].decode()
    files = {file.path: file.content for file in parse(secrets[plan_secret].data["plan"]).files}
    tunnel = next((content.decode().strip() for path, content in files.items() if path.endswith(_TUNNEL_TOKEN)), "")
    number = int(bootstrap.labels[CLUSTER_NAME].rpartition("-")[2])
    return Host(NAMESPACE, plan_secret, token, tunnel, address(number))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.steady.raising")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scratch", type=Path, required=True, help="an empty folder, best where a sync costs nothing")
    parser.add_argument("--clusters", type=int, required=True)
    parser.add_argument("--patterns", type=int, required=True, help="so many are made; the others are copies of them")
    chosen = parser.parse_args()
    tune()
    made = min(chosen.patterns, chosen.clusters)
    virtual.run(_raise(chosen.scratch, made), start=time.time() - _EARLIER_SECONDS)
    if chosen.clusters > made:
        asyncio.run(multiply(chosen.scratch, chosen.clusters))
    chosen.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.copytree(chosen.scratch / DATA, chosen.folder / DATA)
    shutil.copy(chosen.scratch / WORLD, chosen.folder)  # last: where it is, the fleet is whole
    return 0


if __name__ == "__main__":
    sys.exit(main())
