"""A Cluster with MachineDeployments and MachineSets for a test: their controllers are real, and a stub plays the
Machine controller and the providers: Machines become available at once and go at once, unless the test says otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from remuda.capi import names
from remuda.capi.external import Externals
from remuda.capi.machinedeployment.controller import MachineDeploymentController
from remuda.capi.machineset.controller import MachineSetController
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET
from remuda.kube import clock
from remuda.kube.client import Target
from remuda.kube.errors import AlreadyExists, Conflict, Gone, NotFound, ignore_not_found
from remuda.runtime.manager import Manager
from tests.controllers.engine import PATIENCE_SECONDS, Engine, Json, condition, decode, named
from tests.controllers.providers import Provider

EVENTS = Target("v1", "events")


class MachineControllerStub:
    """Which Machines come up, and which may go, is for the test to say, at any time."""

    def __init__(self, harness: RolloutHarness) -> None:
        self.harness = harness
        self.comes_up: Callable[[Json], bool] = lambda machine: True
        self.goes: Callable[[Json], bool] = lambda machine: True
        self.seen: dict[str, Json] = {}
        self.most = 0  # Machines there were at once

    async def run(self) -> None:
        engine, namespace = self.harness.engine, self.harness.namespace
        while True:
            listing = await engine.client.list(MACHINE.target, namespace)
            for item in listing.items:
                await self._take(decode(item))
            with suppress(Gone):
                revision = listing.resource_version
                async for change in engine.client.watch(MACHINE.target, namespace, resource_version=revision):
                    if change.type == "DELETED":
                        self.seen.pop(named(decode(change.value)), None)
                    elif change.type != "BOOKMARK":
                        await self._take(decode(change.value))

    async def _take(self, machine: Json) -> None:
        self.seen[named(machine)] = machine
        self.most = max(self.most, len(self.seen))
        await self.reconcile(machine)

    async def reconcile_all(self) -> None:
        """After the test has changed its mind."""
        for machine in list(self.seen.values()):
            await self.reconcile(machine)

    async def reconcile(self, machine: Json) -> None:
        with suppress(NotFound, AlreadyExists, Conflict):
            if machine["metadata"].get("deletionTimestamp"):
                if self.goes(machine):
                    await self.harness.delete_machine(machine)
            elif self.comes_up(machine) and not is_available(machine):
                await self.harness.mark(named(machine), True)


class RolloutHarness:
    def __init__(self, engine: Engine, namespace: str, provider: Provider) -> None:
        self.engine = engine
        self.namespace = namespace
        self.provider = provider
        self.machine_controller = MachineControllerStub(self)

    @classmethod
    async def create(cls, engine: Engine, provider: Provider) -> RolloutHarness:
        await engine.install(provider.definitions())
        return cls(engine, await engine.namespace(), provider)

    def setup(self, manager: Manager) -> None:
        externals = Externals(manager.caches, manager.client)
        MachineSetController(manager, externals)
        MachineDeploymentController(manager, externals)
        manager.ledger.follow(MACHINE)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Manager]:
        """Run the controllers, and the stub of the Machine controller."""
        machine_controller = asyncio.create_task(self.machine_controller.run())
        try:
            async with self.engine.running(self.namespace, self.setup) as manager:
                yield manager
        finally:
            machine_controller.cancel()
            await asyncio.gather(machine_controller, return_exceptions=True)

    async def settled(self, manager: Manager) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not manager.idle:
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def until_reconciled(self, manager: Manager) -> AsyncIterator[None]:
        """What is done inside has made the controllers run once more, and they have nothing left to do."""
        before = manager.ledger.reconciles
        yield
        async with asyncio.timeout(PATIENCE_SECONDS):
            while manager.ledger.reconciles == before:
                await asyncio.sleep(0.01)
        await self.settled(manager)

    # ---- what the user makes

    async def cluster(self, **spec: Any) -> Json:
        obj = {
            "apiVersion": CLUSTER.api_version,
            "kind": "Cluster",
            "metadata": {"name": "c"},
            "spec": {"infrastructureRef": self.provider.cluster.reference("c"), **spec},
        }
        return await self.engine.create(CLUSTER.target, self.namespace, obj)

    async def templates(self, name: str = "t", metadata: Json | None = None) -> None:
        for kind in (self.provider.machine.template, self.provider.config.template):
            spec = {"template": {"metadata": metadata or {}, "spec": {"size": name}}}
            await self.engine.create(kind.target, self.namespace, kind.object(name, spec))

    def template(self, name: str = "t", metadata: Json | None = None, labels: Json | None = None, **spec: Any) -> Json:
        return {
            "metadata": {"labels": {"pool": "a", **(labels or {})}, **(metadata or {})},
            "spec": {
                "clusterName": "c",
                "version": "v1.35.0",
                "bootstrap": {"configRef": self.provider.config.template.reference(name)},
                "infrastructureRef": self.provider.machine.template.reference(name),
                **spec,
            },
        }

    async def machine_set(self, replicas: int | None = 3, metadata: Json | None = None, **spec: Any) -> Json:
        return await self.engine.create(
            MACHINE_SET.target, self.namespace, self._replicated("MachineSet", "ms", replicas, metadata, spec)
        )

    async def deployment(self, replicas: int | None = 3, metadata: Json | None = None, **spec: Any) -> Json:
        return await self.engine.create(
            MACHINE_DEPLOYMENT.target,
            self.namespace,
            self._replicated("MachineDeployment", "md", replicas, metadata, spec),
        )

    def _replicated(self, kind: str, name: str, replicas: int | None, metadata: Json | None, spec: Json) -> Json:
        wanted = {} if replicas is None else {"replicas": replicas}
        return {
            "apiVersion": MACHINE_SET.api_version,
            "kind": kind,
            "metadata": {"name": name, **(metadata or {})},
            "spec": {
                "clusterName": "c",
                "selector": {"matchLabels": {"pool": "a"}},
                "template": self.template(),
                **wanted,
                **spec,
            },
        }

    async def edit(self, target: Target, name: str, spec: Json) -> Json:
        return await self.engine.patch(target, self.namespace, name, {"spec": spec})

    # ---- what Machine controller and providers do

    async def mark(self, name: str, available: bool, *others: Json, node: bool = True) -> Json:
        """Writes what the Machine controller would. A status is one list: conditions of others must be given again."""
        ready = {"status": "True" if available else "False", "message": "", "lastTransitionTime": clock.now()}
        conditions = [{"type": type, "reason": type, **ready} for type in ("Available", "Ready")]
        status = {"conditions": [*conditions, *others], **({"nodeRef": {"name": f"node-{name}"}} if node else {})}
        return await self.engine.status(MACHINE.target, self.namespace, name, status)

    async def delete_machine(self, machine: Json) -> None:
        """Ends a Machine being deleted, with its objects."""
        for kind in (self.provider.machine, self.provider.config):
            with ignore_not_found():
                await self.engine.delete(kind.target, self.namespace, named(machine))
        finalizers = {"finalizers": None}
        await self.engine.patch(MACHINE.target, self.namespace, named(machine), {"metadata": finalizers})

    # ---- what is looked at

    async def machines(self) -> list[Json]:
        return await self.engine.list(MACHINE.target, self.namespace)

    async def sets(self) -> list[Json]:
        found = await self.engine.list(MACHINE_SET.target, self.namespace)
        return sorted(found, key=lambda one: int(one["metadata"].get("annotations", {}).get(names.REVISION, 0)))

    async def set_with(self, holds: Callable[[Json], object], name: str = "ms") -> Json:
        return await self.engine.until(MACHINE_SET.target, self.namespace, name, holds)

    async def deployment_with(self, holds: Callable[[Json], object]) -> Json:
        return await self.engine.until(MACHINE_DEPLOYMENT.target, self.namespace, "md", holds)

    async def events(self, reason: str) -> list[str]:
        found = await self.engine.list(EVENTS, self.namespace)
        return [one["message"] for one in found if one["reason"] == reason]


def is_available(machine: Json) -> bool:
    return condition(machine, "Available").get("status") == "True"


def counted(**wanted: int) -> Callable[[Json], bool]:
    """Whether a status has these numbers, and is about the present spec."""

    def holds(obj: Json) -> bool:
        status = obj.get("status", {})
        current = status.get("observedGeneration") == obj["metadata"]["generation"]
        return current and all(status.get(name) == number for name, number in wanted.items())

    return holds


def says(type: str, status: str, reason: str = "", text: str = "") -> Callable[[Json], bool]:
    def holds(obj: Json) -> bool:
        found = condition(obj, type)
        return found.get("status") == status and reason in found.get("reason", "") and text in found["message"]

    return holds
