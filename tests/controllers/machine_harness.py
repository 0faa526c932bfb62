"""One Cluster with Machines for a test of the Machine controller: the test plays the providers, and a second server in
this process is the workload cluster, which really evicts pods and really keeps budgets.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.capi import names
from remuda.capi.external import Externals
from remuda.capi.machine import drain_stages
from remuda.capi.machine.controller import add
from remuda.capi.machine.scope import MachineOptions
from remuda.capi.machine.workload import NODE, POD, Pod
from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube import clock
from remuda.kube.client import Client, Target
from remuda.kube.errors import not_found
from remuda.kube.objects import Key
from remuda.runtime import remote
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import Retryable
from remuda.runtime.remote import RemoteClusters
from tests.controllers.engine import PATIENCE_SECONDS, Engine, Json, condition, decode
from tests.controllers.providers import Provider

BUDGETS = Target("policy/v1", "poddisruptionbudgets")
EVENTS = Target("v1", "events")

QUICK = MachineOptions(status_seconds=0.0, drain_retry_seconds=0.2, node_deletion_retry_seconds=0.1)
IMPATIENT = remote.RemoteSettings(
    probe_seconds=0.1,
    answer_seconds=PATIENCE_SECONDS,
    connect_seconds=PATIENCE_SECONDS,
    probes=2,
    retry_seconds=0.1,
)


@asynccontextmanager
async def workload_cluster(folder: Path) -> AsyncIterator[Engine]:
    server = await ApiServer.start(ServerSettings(data_dir=folder, port=0))
    try:
        yield Engine("workload", server.client(), server.kubeconfig)
    finally:
        await server.stop()


class MachineHarness:
    def __init__(self, engine: Engine, namespace: str, provider: Provider, workload: Engine) -> None:
        self.engine = engine
        self.namespace = namespace
        self.provider = provider
        self.workload = workload
        self.reachable = True
        self.id = secrets.token_hex(3)  # tells Nodes of this test from those of others in the same workload cluster

    @classmethod
    async def create(cls, engine: Engine, provider: Provider, workload: Engine) -> MachineHarness:
        await engine.install(provider.definitions())
        return cls(engine, await engine.namespace(), provider, workload)

    # ---- the controller under test

    @asynccontextmanager
    async def running(self, options: MachineOptions = QUICK) -> AsyncIterator[Manager]:
        self.remote = RemoteClusters(self._dial, nodes=NODE, settings=IMPATIENT)

        def setup(manager: Manager) -> None:
            manager.ledger.follow(MACHINE)
            add(manager, Externals(manager.caches, manager.client), self.remote, options)

        async with self.engine.running(self.namespace, setup) as manager:
            self.manager = manager
            self.remote.want(Key(self.namespace, "c"))
            try:
                yield manager
            finally:
                await self.remote.close()

    async def _dial(self, cluster: Key) -> Client:
        if not self.reachable:
            raise Retryable("the network is down")
        return _CuttableClient(self)  # type: ignore[return-value]

    def disconnect(self) -> None:
        """The workload cluster does not answer any more."""
        self.reachable = False

    def reconnect(self) -> None:
        self.reachable = True

    async def disconnected(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.remote.look(Key(self.namespace, "c")).connected:
                await asyncio.sleep(0.02)

    async def settled(self) -> None:
        """Nothing left to do: whatever happens next is seen because it wakes somebody, not by luck."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.manager.idle:
                await asyncio.sleep(0.01)

    async def until_reconciled(self, times: int) -> None:
        """The controller has run so many times more."""
        until = self.manager.ledger.reconciles + times
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.manager.ledger.reconciles < until:
                await asyncio.sleep(0.01)

    # ---- the management cluster

    async def cluster(self, *, ready: bool = True, **spec: Any) -> Json:
        infrastructure = self.provider.cluster.reference("c")
        obj = {
            "apiVersion": CLUSTER.api_version,
            "kind": "Cluster",
            "metadata": {"name": "c"},
            "spec": {"infrastructureRef": infrastructure, **spec},
        }
        made = await self.engine.create(CLUSTER.target, self.namespace, obj)
        return await self.initialize() if ready else made

    async def initialize(self) -> Json:
        status = {"initialization": {"infrastructureProvisioned": True, "controlPlaneInitialized": True}}
        return await self.engine.status(CLUSTER.target, self.namespace, "c", status)

    async def machine(self, name: str = "m", *, metadata: Json | None = None, **spec: Any) -> Json:
        obj = {
            "apiVersion": MACHINE.api_version,
            "kind": "Machine",
            "metadata": {"name": name, **(metadata or {})},
            "spec": {
                "clusterName": "c",
                "bootstrap": {"configRef": self.provider.config.reference(name)},
                "infrastructureRef": self.provider.machine.reference(name),
                **spec,
            },
        }
        return await self.engine.create(MACHINE.target, self.namespace, obj)

    async def control_plane_machine(self) -> Json:
        return await self.machine("cp", metadata={"labels": {names.CONTROL_PLANE: ""}})

    async def config(self, name: str = "m", **metadata: Any) -> Json:
        kind = self.provider.config
        return await self.engine.create(kind.target, self.namespace, kind.object(name, **metadata))

    async def server(self, name: str = "m", spec: Json | None = None, **metadata: Any) -> Json:
        kind = self.provider.machine
        return await self.engine.create(kind.target, self.namespace, kind.object(name, spec, **metadata))

    async def bootstrapped(self, name: str = "m") -> None:
        status = self.provider.data_secret(f"{name}-data")
        await self.engine.status(self.provider.config.target, self.namespace, name, status)

    async def provisioned(self, name: str = "m", **status: Any) -> None:
        target = self.provider.machine.target
        await self.engine.patch(target, self.namespace, name, {"spec": {"providerID": self.provider_id(name)}})
        await self.engine.status(target, self.namespace, name, {**self.provider.provisioned, **status})

    def provider_id(self, name: str) -> str:
        return f"test://{self.id}/{name}"

    async def until(self, holds: Any, name: str = "m") -> Json:
        return await self.engine.until(MACHINE.target, self.namespace, name, holds)

    async def running_machine(self, name: str = "m", *, metadata: Json | None = None, **spec: Any) -> Json:
        """With everything a Machine can have."""
        await self.config(name)
        await self.server(name)
        await self.machine(name, metadata=metadata, **spec)
        await self.bootstrapped(name)
        await self.provisioned(name)
        await self.node(name)
        made = await self.until(phase("Running"), name)
        await self.settled()
        return made

    async def events(self, reason: str) -> list[str]:
        found = await self.engine.when(
            EVENTS, self.namespace, lambda events: [one for one in events if one["reason"] == reason]
        )
        return [one["message"] for one in found]

    # ---- the workload cluster

    def node_name(self, name: str = "m") -> str:
        return f"{self.id}-{name}"

    async def node(
        self, name: str = "m", *, ready: str = "True", provider_id: str | None = None, **metadata: Any
    ) -> Json:
        wanted = self.provider_id(name) if provider_id is None else provider_id
        obj = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.node_name(name), **metadata},
            "spec": {"providerID": wanted} if wanted else {},
        }
        await self.workload.create(NODE.target, "", obj)
        return await self.node_status(name, ready=ready)

    async def node_status(self, name: str = "m", *, ready: str = "True", **more: Any) -> Json:
        good = {"Ready": ready, "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
        conditions = [
            {"type": type, "status": status, "reason": "Test", "message": "", "lastTransitionTime": clock.now()}
            for type, status in good.items()
        ]
        info = {"kubeletVersion": "v1.35.0", "osImage": "Test OS"}
        status = {"conditions": conditions, "nodeInfo": info, **more}
        return await self.workload.status(NODE.target, "", self.node_name(name), status)

    async def pod(self, name: str, *, on: str = "m", namespace: str = "default", **metadata: Any) -> Json:
        obj = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{self.id}-{name}", **metadata},
            "spec": {"nodeName": self.node_name(on), "containers": [{"name": "c", "image": "test"}]},
        }
        await self.workload.create(POD.target, namespace, obj)
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        return await self.workload.status(POD.target, namespace, f"{self.id}-{name}", status)

    async def kill(self, name: str, namespace: str = "default") -> None:
        """What a kubelet does at the end of a pod."""
        await self.workload.client.delete(POD.target, namespace, f"{self.id}-{name}", grace_period_seconds=0)

    async def budget(self, app: str, *, allowed: int) -> None:
        """A budget as its controller keeps it."""
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
        obj = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app}, "spec": spec}
        made = await self.workload.create(BUDGETS, "default", obj)
        await self.allow(app, allowed, made["metadata"]["generation"])

    async def allow(self, app: str, allowed: int, generation: int = 1) -> None:
        status = {
            "observedGeneration": generation,
            "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed,
            "desiredHealthy": 1,
            "expectedPods": 1 + allowed,
        }
        await self.workload.status(BUDGETS, "default", app, status)

    async def find_node(self, name: str = "m") -> Json | None:
        return await self.workload.get(NODE.target, "", self.node_name(name))

    async def get_pod(self, name: str, namespace: str = "default") -> Json:
        return decode(await self.workload.client.get(POD.target, namespace, f"{self.id}-{name}"))


class _CuttableClient:
    """A client of the workload cluster that can be cut."""

    def __init__(self, harness: MachineHarness) -> None:
        self._harness = harness

    def __getattr__(self, name: str) -> Any:
        if not self._harness.reachable:
            raise ConnectionError("the network is down")
        return getattr(self._harness.workload.client, name)

    async def close(self) -> None:
        pass


def says(type: str, reason: str, text: str = "") -> Any:
    """That a condition has this reason, and this in its message."""

    def holds(machine: Json) -> bool:
        found = condition(machine, type)
        return found.get("reason") == reason and text in found.get("message", "")

    return holds


def phase(wanted: str) -> Any:
    return lambda machine: machine.get("status", {}).get("phase") == wanted


def evictions_answer_404(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have workload clusters find no Pod that is to be evicted. Return the names of those that are, as they are."""
    asked: list[str] = []
    evict_pod = drain_stages.evict_pod

    class Answering404:
        async def create(self, *args: object, name: str, **options: object) -> bytes:
            asked.append(name)
            raise not_found("", "pods", name)

    async def evict(client: Client, pod: Pod, *, grace_seconds: int | None) -> str:
        return await evict_pod(Answering404(), pod, grace_seconds=grace_seconds)  # type: ignore[arg-type]

    monkeypatch.setattr(drain_stages, "evict_pod", evict)
    return asked
