"""Declared clusters for a test of provisioning: the core and the provisioning controllers are real, and machines are of
the driver `sim`, whose kinds are served; the test plays their controllers, the control plane and hosts.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from remuda.capi.setup import CONTROLLERS as CORE
from remuda.capi.setup import add_controllers
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK, MACHINE_SET
from remuda.kube.client import Target
from remuda.kube.core import NAMESPACES, SECRETS
from remuda.kube.objects import Kind
from remuda.providers import setup as providers
from remuda.providers.infrastructure import controller as infrastructure
from remuda.providers.machine import definitions as drivers
from remuda.providers.machine import options
from remuda.providers.shared.drivers.sim import Sim
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP, RKE_BOOTSTRAP_TEMPLATE
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.providers.shared.types.machine import config_kind, machine_kind, template_kind
from remuda.provisioning import setup
from remuda.provisioning.types import CLUSTER, MANAGEMENT_CLUSTER
from remuda.runtime.manager import Manager
from tests.controllers.engine import PATIENCE_SECONDS, Engine, Json, condition, eventually, named

CONFIG = config_kind("sim")
TEMPLATE = template_kind("sim")
SIM_MACHINE = machine_kind("sim")
EVENTS = Target("v1", "events")
CORE_BUT_MACHINES = tuple(name for name in CORE if name != "machinehealthcheck")

NAMESPACED: tuple[Kind[Any], ...] = (
    CLUSTER,
    CAPI_CLUSTER,
    RKE_CLUSTER,
    RKE_CONTROL_PLANE,
    RKE_BOOTSTRAP_TEMPLATE,
    RKE_BOOTSTRAP,
    TEMPLATE,
    CONFIG,
    SIM_MACHINE,
    MACHINE_DEPLOYMENT,
    MACHINE_SET,
    MACHINE_HEALTH_CHECK,
    MACHINE,
)


def _definitions() -> list[Json]:
    return [*providers.definitions(), *setup.definitions(), *drivers.of_driver(options.of_driver(Sim))]


def pool(name: str = "servers", **more: Any) -> Json:
    roles = {} if any(key.endswith("Role") for key in more) else {"etcdRole": True, "controlPlaneRole": True}
    return {"name": name, "quantity": 1, "machineConfigRef": {"kind": "SimConfig", "name": name}, **roles, **more}


class ProvisioningHarness:
    def __init__(self, engine: Engine, namespace: str) -> None:
        self.engine = engine
        self.namespace = namespace
        self.manager: Manager

    @classmethod
    async def create(cls, engine: Engine) -> ProvisioningHarness:
        await engine.install(await asyncio.to_thread(_definitions))
        return cls(engine, await engine.namespace())

    @classmethod
    async def with_one_server(cls, engine: Engine) -> ProvisioningHarness:
        """With a cluster of one server, as controllers have made it; nobody is at work any more."""
        found = await cls.create(engine)
        await found.config("servers")
        async with found.running():
            await found.cluster(pool("servers"))
            await found.made()
            await found.machines(1)
            await found.settled()
        return found

    @asynccontextmanager
    async def running(self, *, core: Sequence[str] = CORE_BUT_MACHINES) -> AsyncIterator[Manager]:
        def add(manager: Manager) -> None:
            add_controllers(manager, only=core)
            infrastructure.add(manager)
            setup.add(manager)

        async with self.engine.running(self.namespace, add) as manager:
            self.manager = manager
            yield manager

    async def settled(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.manager.idle:
                await asyncio.sleep(0.01)

    # what a user applies

    async def config(self, name: str = "servers", **fields: Any) -> Json:
        return await self.engine.create(CONFIG.target, self.namespace, _object(CONFIG, name, **fields))

    async def cluster(self, *pools: Json, name: str = "prairie", annotations: Json | None = None, **rke: Any) -> Json:
        spec = {"kubernetesVersion": "v1.34.1+k3s1", "rkeConfig": {"machinePools": list(pools), **rke}}
        obj = _object(CLUSTER, name, spec=spec)
        if annotations:
            obj["metadata"]["annotations"] = annotations
        return await self.engine.create(CLUSTER.target, self.namespace, obj)

    async def edit(self, *pools: Json, **rke: Any) -> Json:
        """The whole list of pools, as kubectl would send it."""
        wanted = {"machinePools": list(pools), **rke}
        return await self.engine.patch(CLUSTER.target, self.namespace, "prairie", {"spec": {"rkeConfig": wanted}})

    async def credential(self, name: str) -> None:
        data = {"simcredentialConfig-token": base64.b64encode(b"t0ken").decode()}
        obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
        await self.engine.create(SECRETS, self.namespace, obj)

    # what is there

    async def get(self, kind: Kind[Any], name: str = "prairie") -> Json:
        found = await self.engine.get(kind.target, self.namespace, name)
        assert found is not None, f"there is no {kind.name} {name}"
        return found

    async def until(self, kind: Kind[Any], name: str, holds: Any) -> Json:
        return await self.engine.until(kind.target, self.namespace, name, holds)

    async def says(self, type: str, status: str, name: str = "prairie") -> Json:
        found = await self.until(CLUSTER, name, lambda obj: condition(obj, type).get("status") == status)
        return condition(found, type)

    async def made(self, name: str = "prairie") -> Json:
        """The Cluster, when all of its last generation has been made into objects."""

        def holds(obj: Json) -> bool:
            seen = obj.get("status", {}).get("observedGeneration", 0)
            return bool(seen == obj["metadata"]["generation"]) and condition(obj, "RKECluster")["status"] == "True"

        return await self.until(CLUSTER, name, holds)

    async def machines(self, count: int) -> list[Json]:
        found = await self.engine.when(
            MACHINE.target, self.namespace, lambda objects: objects if len(objects) == count else None
        )
        return found  # type: ignore[no-any-return]

    async def management(self) -> Json:
        status = (await self.made())["status"]
        found = await self.engine.get(MANAGEMENT_CLUSTER.target, "", status["clusterName"])
        assert found is not None
        return found

    async def names(self, kind: Kind[Any]) -> list[str]:
        return sorted(named(obj) for obj in await self.engine.list(kind.target, self.namespace))

    async def versions(self) -> dict[str, str]:
        """Of everything there is."""
        found = {}
        for kind in NAMESPACED:
            for obj in await self.engine.list(kind.target, self.namespace):
                found[f"{kind.name} {named(obj)}"] = obj["metadata"]["resourceVersion"]
        for obj in await self.engine.list(MANAGEMENT_CLUSTER.target, ""):
            if obj["spec"]["fleetWorkspaceName"] == self.namespace:
                found[f"management {named(obj)}"] = obj["metadata"]["resourceVersion"]
        return found

    async def nothing_left(self, management: str = "") -> None:
        await eventually(self._is_empty)
        if management:
            await self.engine.gone(MANAGEMENT_CLUSTER.target, "", management)
            await self.engine.gone(NAMESPACES, "", management)

    async def _is_empty(self) -> bool:
        return not await self.versions()

    async def delete(self, name: str = "prairie") -> None:
        await self.engine.delete(CLUSTER.target, self.namespace, name)

    # what the test plays

    async def control_plane_says(self, status: str, reason: str, message: str = "", **more: Any) -> None:
        found = await self.get(RKE_CONTROL_PLANE)
        said = {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        news = {"conditions": [said], "observedGeneration": found["metadata"]["generation"], **more}
        await self.engine.status(RKE_CONTROL_PLANE.target, self.namespace, "prairie", news)


def _object(kind: Kind[Any], name: str, **fields: Any) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, **fields}
