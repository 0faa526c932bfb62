"""One Cluster with an RKEControlPlane for a test: core, bootstrap and control plane controllers are real, and so are
the planner and its plans. Hosts are model agents that follow their plan Secrets by the rules of the real one; the test
plays the infrastructure of machines, and, where it wants one, the distribution on a workload cluster.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from remuda.agent.plan import Instruction, Plan
from remuda.agent.rules import Result
from remuda.capi import names as capi_names
from remuda.capi.machine.scope import MachineOptions
from remuda.capi.machine.workload import NODE
from remuda.capi.setup import add_controllers
from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube import clock
from remuda.kube.client import Client
from remuda.kube.core import SECRETS
from remuda.kube.objects import Key
from remuda.lab.simulator.agents import Agents
from remuda.providers.bootstrap import setup as bootstrap
from remuda.providers.bootstrap.definitions import definitions as bootstrap_definitions
from remuda.providers.controlplane import setup as control_plane
from remuda.providers.controlplane.definitions import definitions as control_plane_definitions
from remuda.providers.controlplane.drainer import DrainSettings
from remuda.providers.controlplane.installation import Pack
from remuda.providers.shared import names
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import Retryable
from tests.controllers.bootstrap_harness import TEST_MACHINE
from tests.controllers.engine import PATIENCE_SECONDS, Engine, Json, condition, is_true, named

VERSION = "v1.36.4+k3s1"
SERVER = {names.ETCD_ROLE: "true", names.CONTROL_PLANE_ROLE: "true"}
WORKER = {names.WORKER_ROLE: "true"}
ARTEFACTS = {"amd64": {"k3s": "0" * 64}}
_SITE = Site(server_url="https://manager.example:8443", ca_pem=b"-----BEGIN CERTIFICATE-----\n")


class Hosts:
    """The servers behind the agents, and the one etcd they make up."""

    def __init__(self) -> None:
        self.members: list[str] = []  # by node
        self.failing: dict[str, str] = {}  # node → what its installation says
        self.sick: set[str] = set()
        self.ran: list[tuple[str, str]] = []
        self._plans: dict[Key, Plan] = {}

    def seconds(self, agent: Key, plan: Plan) -> float:
        self._plans[agent] = plan
        return 0.0

    def run(self, agent: Key, instruction: Instruction, attempt: int) -> Result:
        node = host_of(agent)
        if instruction.name == "etcd-members":
            listed = [
                {"name": f"{name}-0a1b", "address": "", "learner": False, "healthy": name not in self.sick}
                for name in self.members
            ]
            return Result(0, json.dumps({"members": listed}).encode())
        if instruction.name == "unit-status":
            return Result()
        self.ran.append((node, instruction.name))
        if node in self.failing:
            return Result(1, b"", self.failing[node].encode())
        plan = self._plans[agent]
        installs = any(one.name == instruction.name for one in plan.instructions)  # what is periodic joins nothing
        with_etcd = any(one.name == "etcd-members" for one in plan.periodic_instructions)
        if installs and with_etcd and node not in self.members:
            self.members.append(node)
        return Result()

    def well(self, agent: Key, probe: str) -> bool:
        return host_of(agent) not in self.sick


class QuickAgents(Agents):
    """They look at the members of etcd every second: tests are in a hurry."""

    def _run_periodic(self, work: Any, plan: Plan, applied: bool) -> None:
        often = [one._replace(period_seconds=1) for one in plan.periodic_instructions]
        super()._run_periodic(work, plan._replace(periodic_instructions=often), applied)


def host_of(agent: Key) -> str:
    return agent.name.removesuffix("-machine-plan")


class ControlPlaneHarness:
    def __init__(self, engine: Engine, namespace: str, workload: Engine | None) -> None:
        self.engine = engine
        self.namespace = namespace
        self.workload = workload
        self.hosts = Hosts()
        self.manager: Manager
        self.artefacts: Mapping[str, Mapping[str, str]] = ARTEFACTS
        self.pack: Pack | None = None
        self.proxied = False

    @classmethod
    async def create(cls, engine: Engine, workload: Engine | None = None) -> ControlPlaneHarness:
        await engine.install([*bootstrap_definitions(), *control_plane_definitions(), TEST_MACHINE.definition()])
        return cls(engine, await engine.namespace(), workload)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Manager]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.engine.running(self.namespace, self._add_agents))
            self.manager = await stack.enter_async_context(self.engine.running(self.namespace, self._add))
            yield self.manager

    def _add_agents(self, manager: Manager) -> None:
        QuickAgents(manager, self.hosts)

    def _add(self, manager: Manager) -> None:
        from remuda.providers.infrastructure import controller as infrastructure

        options = MachineOptions(status_seconds=0.0, drain_retry_seconds=0.2, node_deletion_retry_seconds=0.1)
        remote = add_controllers(manager, only=("cluster", "machine"), dial=self._dial, options=options)
        infrastructure.add(manager)
        bootstrap.add(manager, _SITE)
        settings = control_plane.ControlPlaneSettings(
            artefacts=lambda distro, version: self.artefacts,
            pack=self.pack,
            drain=DrainSettings(retry_seconds=0.2),
            proxied=self.proxied,
        )
        control_plane.add(manager, remote, settings)

    async def _dial(self, cluster: Key) -> Client:
        if self.workload is None:
            raise Retryable("nobody has connected a network here")
        return UnclosedClient(self.workload.client)  # type: ignore[return-value]

    async def settled(self) -> None:
        """Nothing left to do: whatever happens next is seen because it wakes somebody."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.manager.idle:
                await asyncio.sleep(0.01)

    # ---- what a user applies

    async def cluster(self, **spec: Any) -> None:
        reference = {"apiGroup": names.GROUP, "kind": "RKEControlPlane", "name": "c"}
        infrastructure = {"apiGroup": names.GROUP, "kind": "RKECluster", "name": "c"}
        await self._make(RKE_CLUSTER, "c", {})
        await self._make(RKE_CONTROL_PLANE, "c", {"kubernetesVersion": VERSION, "clusterName": "c", **spec})
        await self._make(CLUSTER, "c", {"infrastructureRef": infrastructure, "controlPlaneRef": reference})

    async def machine(self, name: str, roles: Mapping[str, str]) -> None:
        labels = {**roles, capi_names.CLUSTER_NAME: "c"}
        await self._make(RKE_BOOTSTRAP, name, {"clusterName": "c"}, labels)
        await self.engine.create(TEST_MACHINE.target, self.namespace, TEST_MACHINE.object(name))
        spec = {
            "clusterName": "c",
            "bootstrap": {"configRef": {"apiGroup": names.GROUP, "kind": "RKEBootstrap", "name": name}},
            "infrastructureRef": TEST_MACHINE.reference(name),
        }
        await self._make(MACHINE, name, spec, labels)

    async def _make(self, kind: Any, name: str, spec: Json, labels: Json | None = None) -> Json:
        metadata: Json = {"name": name} | ({"labels": labels} if labels else {})
        obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
        return await self.engine.create(kind.target, self.namespace, obj)

    async def change(self, **spec: Any) -> Json:
        return await self.engine.patch(RKE_CONTROL_PLANE.target, self.namespace, "c", {"spec": spec})

    async def secret(self, name: str, data: Mapping[str, str], type: str = "Opaque", **metadata: Any) -> None:
        obj = {"apiVersion": "v1", "kind": "Secret", "type": type, "metadata": {"name": name, **metadata}}
        await self.engine.create(SECRETS, self.namespace, {**obj, "stringData": dict(data)})

    # ---- what infrastructure and hosts do

    async def host(self, name: str, address: str) -> None:
        """Its server is there, and its agent has called."""
        target = TEST_MACHINE.target
        await self.engine.patch(target, self.namespace, name, {"spec": {"providerID": self.provider_id(name)}})
        addresses = [{"type": "InternalIP", "address": address}]
        await self.engine.status(
            target, self.namespace, name, {"initialization": {"provisioned": True}, "addresses": addresses}
        )
        called = {
            "type": "AgentConnected",
            "status": "True",
            "reason": "Connected",
            "message": "",
            "lastTransitionTime": clock.now(),
        }
        found = await self.engine.until(
            RKE_BOOTSTRAP.target, self.namespace, name, lambda obj: condition(obj, "AgentConnected")
        )
        kept = [one for one in found["status"]["conditions"] if one["type"] != "AgentConnected"]
        await self.engine.status(RKE_BOOTSTRAP.target, self.namespace, name, {"conditions": [*kept, called]})

    def provider_id(self, name: str) -> str:
        return f"test://{self.namespace}/{name}"

    async def cluster_with_hosts(
        self, servers: Sequence[str] = ("s1",), workers: Sequence[str] = (), **spec: Any
    ) -> None:
        """A cluster with machines, all of whose hosts have come up."""
        await self.cluster(**spec)
        names_ = [*((name, SERVER) for name in servers), *((name, WORKER) for name in workers)]
        for name, roles in names_:
            await self.machine(name, roles)
        for number, (name, _) in enumerate(names_):
            await self.host(name, f"10.0.0.{number + 1}")

    # ---- what is there

    async def until_control_plane(self, holds: Any, seconds: float = PATIENCE_SECONDS) -> Json:
        return await self.engine.until(RKE_CONTROL_PLANE.target, self.namespace, "c", holds, seconds=seconds)

    async def ready(self, generation: int = 0) -> Json:
        """The control plane, when all hosts are as they shall be; and alive, where there is a cluster to be asked."""
        type = "Reconciled" if self.workload is None else "Ready"
        return await self.until_control_plane(
            lambda obj: is_true(obj, type) and obj["status"].get("observedGeneration", 0) >= max(1, generation)
        )

    async def made(self, name: str) -> Json:
        return await self.engine.until(SECRETS, self.namespace, name, lambda obj: True)

    async def until_machine(self, name: str, holds: Any) -> Json:
        return await self.engine.until(MACHINE.target, self.namespace, name, holds)

    async def plans(self) -> dict[str, Json]:
        found = await self.engine.list(SECRETS, self.namespace)
        return {host_of(Key("", named(one))): one for one in found if one.get("type") == names.PLAN_TYPE}

    # ---- the distribution, where there is a workload cluster

    async def node(self, name: str, **annotations: str) -> None:
        assert self.workload is not None
        labels = {"node-role.kubernetes.io/etcd": "true"}
        obj = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {"providerID": self.provider_id(name)},
        }
        await self.workload.create(NODE.target, "", obj)
        said = [
            {"type": type, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": clock.now()}
            for type in ("Ready", "EtcdIsVoter")
        ]
        status = {"conditions": said, "nodeInfo": {"kubeletVersion": VERSION}}
        await self.workload.status(NODE.target, "", name, status)


class UnclosedClient:
    """A client that outlives whoever closes it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def close(self) -> None:
        pass
