"""A whole world in one process, in virtual time: the real engine, the real controllers, and everything around them
simulated.

    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", control_planes=3, workers=5))
        await world.available("c")

    simulate(scenario, seed=7)

`broken()` says what the models hold against the controllers; it is empty unless they have done wrong.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.apiserver.storage.types import StoreEvent
from remuda.capi import admission, names
from remuda.capi.definitions import definitions as core_definitions
from remuda.capi.setup import add_controllers
from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.kube import conditions
from remuda.kube.admission import AdmissionRegistration
from remuda.kube.client import Client
from remuda.kube.objects import Key, Kind
from remuda.lab.simulator import loop as virtual
from remuda.lab.simulator.blueprint import Blueprint
from remuda.lab.simulator.cloud import MemoryCloud, made_twice
from remuda.lab.simulator.kinds import FAMILIES, definitions
from remuda.lab.simulator.setup import add_providers
from remuda.lab.simulator.workload_registry import ModelWorkloads
from remuda.runtime.caches import Caches
from remuda.runtime.definitions import install
from remuda.runtime.manager import Manager

T = TypeVar("T")
W = TypeVar("W", bound="World")

PATIENCE_SECONDS = 3600.0  # in simulated time


class World:
    server_kinds: Sequence[Kind[Any]] = tuple(family.machine for family in FAMILIES)

    def __init__(self, server: ApiServer, *, catch_up_seconds: float = 0.0) -> None:
        self._server = server
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self.history: list[str] = []  # every write, in order
        self.client: Client = server.client()
        self.cloud = MemoryCloud()
        self.workloads = ModelWorkloads(catch_up_seconds)
        self._view = Caches(server.client())  # separate caches, which keep running when a manager crashes
        self._clusters, self._machines = self._view.of(CLUSTER), self._view.of(MACHINE)
        self._servers = [self._view.of(kind) for kind in self.server_kinds]
        self.manager = self._new_manager()
        server.store.subscribe(self._committed)

    def _new_manager(self) -> Manager:
        manager = Manager(self._server.client(), name="world")
        manager.ledger.follow(MACHINE)
        add_controllers(manager, dial=self.workloads.dial)
        add_providers(manager, self.cloud, self.workloads)
        return manager

    def _committed(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            entry = event.entry
            self.history.append(f"{event.type} {entry.table} {Key(entry.namespace, entry.name)}")
        self._changed.set()
        for listener in self._listeners:
            listener()

    def on_write(self, listener: Callable[[], None]) -> None:
        """Call a function after every commit, to check invariants."""
        self._listeners.append(listener)

    def present(self) -> list[str]:
        """Return every existing object, as lines of the history name them."""
        store = self._server.store
        return [
            f"{table} {Key(entry.namespace, entry.name)}" for table in store.tables() for entry in store.scan(table)
        ]

    async def start(self) -> None:
        await install(self.client, [*core_definitions(), *self._definitions()])
        await self._view.start()
        await self._lead()

    def _definitions(self) -> list[dict[str, Any]]:
        """Return the CRDs of the kinds beside Cluster API's own."""
        return definitions()

    async def _lead(self) -> None:
        await self.manager.start()
        self.manager.lead()

    async def crash(self) -> None:
        """Stop all controllers at once, and start new ones that know only the API."""
        await asyncio.gather(*(controller.stop(0.0) for controller in self.manager.controllers.values()))
        await self.manager.stop()
        self.manager = self._new_manager()
        await self._lead()

    async def stop(self) -> None:
        await self.manager.stop()
        await self._view.close()
        await self.workloads.close()

    # -- actions of users

    async def create_cluster(self, blueprint: Blueprint) -> None:
        for target, obj in blueprint.objects():
            await self.client.create(target, blueprint.namespace, obj)

    async def delete_cluster(self, name: str, namespace: str = "default") -> None:
        await self.client.delete(CLUSTER.target, namespace, name)
        await self.until(lambda: self.cluster(name, namespace) is None, f"Cluster {name} is gone")

    # -- observation and waiting

    def cluster(self, name: str, namespace: str = "default") -> Cluster | None:
        return self._clusters.get(namespace, name)

    @staticmethod
    def cluster_key(name: str, namespace: str = "default") -> Key:
        return Key(namespace, name)

    def machines(self, cluster: str, namespace: str = "default") -> list[Machine]:
        return [one for one in self._machines.all(namespace) if one.spec.cluster_name == cluster]

    def machine(self, name: str, namespace: str = "default") -> Machine | None:
        return self._machines.get(namespace, name)

    async def until(self, holds: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the condition holds, checked after every write. Raise TimeoutError that names the condition."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"not within {seconds:g} s: {what}; {self.waits()}") from None

    async def available(self, name: str, namespace: str = "default", seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the Cluster is available, with the desired number of available Machines and no others."""

        def holds() -> bool:
            cluster = self.cluster(name, namespace)
            if cluster is None or not conditions.is_true(cluster.status.conditions, "Available"):
                return False
            wanted = [
                part.desired_replicas or 0 for part in (cluster.status.control_plane, cluster.status.workers) if part
            ]
            machines = self.machines(name, namespace)
            ready = [one for one in machines if conditions.is_true(one.status.conditions, "Available")]
            return len(machines) == len(ready) == sum(wanted)

        await self.until(holds, f"Cluster {name} is available", seconds)

    async def quiet(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until there was no write for a minute."""
        async with asyncio.timeout(seconds):
            while True:
                self._changed.clear()
                try:
                    async with asyncio.timeout(60):
                        await self._changed.wait()
                except TimeoutError:
                    return

    def waits(self) -> str:
        """Return what every controller waits for, in its own words."""
        found = [
            f"{name} {key}: {wait.blocked.message}"
            for name, controller in self.manager.controllers.items()
            for key, wait in controller.waits.items()
        ]
        return "; ".join(found) or "nobody waits for anything"

    async def broken(self) -> list[str]:
        """Return all violations, as the models judge. Call it when nothing in the world changes."""
        complaints = list(self.workloads.violations)
        complaints += [f"the server {name} was made twice" for name in made_twice(self.cloud.journal)]
        known = {
            (
                machine.metadata.name,
                f"{machine.metadata.namespace}/{machine.metadata.labels.get(names.CLUSTER_NAME, '')}",
            )
            for servers in self._servers
            for machine in servers.all()
        }
        leaked = [host.name for host in await self.cloud.hosts() if (host.name, host.tag) not in known]
        return complaints + [f"nobody knows of the server {name}" for name in leaked]


def simulate(scenario: Callable[[World], Awaitable[T]], *, seed: int = 0, catch_up_seconds: float = 0.0) -> T:
    """Run a scenario in a new world. `catch_up` is the time that new members of etcd need."""
    return tell(scenario, lambda server: World(server, catch_up_seconds=catch_up_seconds), admission.FUNCTIONS, seed)


def tell(
    scenario: Callable[[W], Awaitable[T]],
    make: Callable[[ApiServer], W],
    admitted_by: Sequence[AdmissionRegistration],
    seed: int,
) -> T:
    """Run a scenario in a world of any type."""

    async def run(folder: Path) -> T:
        settings = ServerSettings(data_dir=folder, port=0, volatile=True)
        server = await ApiServer.start(settings, admission=admitted_by)
        try:
            world = make(server)
            await world.start()
            try:
                return await scenario(world)
            finally:
                await world.stop()
        finally:
            await server.stop()

    with tempfile.TemporaryDirectory(prefix="remuda-world-") as folder:
        return virtual.run(run(Path(folder)), seed=seed)
