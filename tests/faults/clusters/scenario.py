"""The life of one declared cluster of nano, on hosts that are processes with real agents: three servers and two workers
come about, are configured anew and upgraded in place, grow, lose a server in good order, shrink, endure and go.

Whoever looks after it asks again at once when a Job has failed, so that nothing waits for a back-off that other tests
look at.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from remuda.capi.machine.workload import NODE
from remuda.capi.types import MACHINE
from remuda.kube import kubeconfig
from remuda.kube.core import NAMESPACES, SECRETS
from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient
from remuda.kube.objects import Kind
from remuda.providers.controlplane.artefacts import Artefacts, nano_bundles
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from remuda.providers.shared.types.machine import config_kind, machine_kind
from remuda.provisioning.pools import POOL_NAME
from remuda.provisioning.types import CLUSTER, MANAGEMENT_CLUSTER
from tests.faults import stages
from tests.faults.clusters.proof import Witness
from tests.faults.controllers.view import left_in
from tests.faults.machines.scenario import Json, RetryingClient, ask_again
from tests.faults.stages import Stage
from tests.faults.supervised_up import SupervisedUp

VERSION, NEWER = "v1.36.4+nano1", "v1.36.5+nano1"
SERVERS, WORKERS = "servers", "workers"
_NAMESPACE = _NAME = "prairie"
_CONFIG, _MACHINE = config_kind("process"), machine_kind("process")
_SECRETS_FOR_LIFE = ("ca", "etcd", "proxy", "sa", "rke-state")
_PATIENCE_SECONDS = 960.0
_LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 60.0


def provide(data: Path, folder: Path) -> None:
    """Both versions are there for hosts to install."""
    store = Artefacts(data / "artefacts")
    for version in (VERSION, NEWER):
        path = folder / f"{version}.tar.gz"
        nano_bundles.build(version, path)
        store.add("nano", version, nano_bundles.architecture(), {nano_bundles.NAME: path})


class ClusterScenario:
    def __init__(self, up: SupervisedUp, client: HttpClient, enough: asyncio.Event) -> None:
        """`enough`: has happened to it; it does not go before."""
        self.up = up
        self.enough = enough
        self.client = client
        self.retrying_client = RetryingClient(client)
        self.witness = Witness(up.data / "hosts" / "process")
        self.quantities = {SERVERS: 3, WORKERS: 2}
        self.version = VERSION
        self.argument = "max-pods=50"
        self.machines: dict[str, str] = {}  # the uid of each
        self.kept: dict[str, Json] = {}  # what is made once in the life of a cluster
        self.stages_done = 0  # stages

    def stages(self) -> list[Stage]:
        return [self.create, self.reconfigure, self.upgrade, self.replace, self.endure, self.delete]

    async def run(self) -> None:
        await stages.run(self.stages(), (self.witness.look(), self._look_after()), self._stage_done)

    def _stage_done(self, stage: Stage) -> None:
        self.stages_done += 1
        print(f"told: {getattr(stage, '__name__', stage)}")

    # the stages

    async def create(self) -> None:
        await self.retrying_client.make(NAMESPACES, "", "Namespace", _NAMESPACE)
        for pool in self.quantities:
            await self.retrying_client.make(_CONFIG.target, _NAMESPACE, _CONFIG.name, pool)
        await self.retrying_client.make(CLUSTER.target, _NAMESPACE, CLUSTER.name, _NAME, spec=self._spec)
        await self.settled()
        self.kept = await self._kept_for_life()
        assert len(await self._init_nodes()) == 1

    async def reconfigure(self) -> None:
        self.argument = "max-pods=60"
        await self._declare()
        await self._settled_in_place()

    async def upgrade(self) -> None:
        """And meanwhile there is to be one worker more."""
        self.version, self.quantities[WORKERS] = NEWER, 3
        await self._declare()
        await self._settled_in_place()

    async def replace(self) -> None:
        """A server goes and another one comes; and meanwhile there are to be fewer workers."""
        (first,) = await self._init_nodes()
        goes = next(name for name in await self._machines(SERVERS) if name != first)
        await self.retrying_client.delete(MACHINE.target, _NAMESPACE, goes)
        self.quantities[WORKERS] = 1
        await self._declare()
        before = self.machines
        await self.settled()
        assert goes not in self.machines
        assert len(before.keys() & self.machines.keys()) == len(self.machines) - 1, "one server is new, and nobody else"

    async def endure(self) -> None:
        """Nobody wants anything."""
        await self.enough.wait()
        before = self.machines
        await self.settled()
        assert self.machines == before

    async def delete(self) -> None:
        management = await self._ids()
        assert len(management) == 1, "a second id was given"
        assert await self._kept_for_life() == self.kept, "what is made once was made again"
        assert self.witness.complaints(hosts=5 + 1 + 1) == []
        await self.retrying_client.delete(CLUSTER.target, _NAMESPACE, _NAME)
        await self.retrying_client.until(CLUSTER.target, _NAMESPACE, _NAME, lambda obj: obj is None)
        await self.retrying_client.until(NAMESPACES, "", management[0], lambda obj: obj is None)
        assert await self._ids() == []
        await self._has_nothing_left()

    async def _has_nothing_left(self) -> None:
        left: list[str] = []
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while left := [
                    *await left_in(self.client, _NAMESPACE),
                    *self.witness.hosts(),
                    *map(str, await asyncio.to_thread(self.up.processes)),
                ]:
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise AssertionError(f"left: {', '.join(left)}") from None
        assert self.witness.complaints(hosts=5 + 1 + 1) == []

    # looking

    async def settled(self) -> None:
        """Until the cluster is what was declared last, by its own word and by that of its Nodes."""
        why = ""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while why := await self._differs():
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise AssertionError(f"not within {_PATIENCE_SECONDS:g} s: {why}") from None
        self.machines = {name: obj["metadata"]["uid"] for name, obj in (await self._machines()).items()}

    async def _settled_in_place(self) -> None:
        before = self.machines
        await self.settled()
        assert before.items() <= self.machines.items(), "a machine was replaced"

    async def _differs(self) -> str:
        """In words; nothing: it does not."""
        found = await self.retrying_client.get(CLUSTER.target, _NAMESPACE, _NAME)
        assert found is not None
        status = found.get("status") or {}
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return f"it was not seen: {status}"
        if any(one["type"] == "Ready" and one["status"] != "True" for one in status["conditions"]):
            return f"the Cluster is not Ready: {status['conditions']}"
        for pool, quantity in self.quantities.items():
            machines = await self._machines(pool)
            going = [name for name, obj in machines.items() if "deletionTimestamp" in obj["metadata"]]
            if going or len(machines) != quantity:
                return f"not {quantity} {pool}: {sorted(machines)}, of which {going} are going"
        nodes = await self._nodes()
        everybody = await self._machines()
        wanted = {obj.get("status", {}).get("nodeRef", {}).get("name") for obj in everybody.values()}
        if nodes.keys() != wanted:
            return f"the Nodes {sorted(nodes)} are not those of {sorted(map(str, wanted))}"
        return "; ".join(filter(None, (self._lacks(obj) for obj in nodes.values())))

    def _lacks(self, node: Json) -> str:
        said = {one["type"]: one["status"] for one in node["status"].get("conditions", ())}
        version = node["status"].get("nodeInfo", {}).get("kubeletVersion")
        arguments = node["metadata"].get("annotations", {}).get("nano.io/node-args", "")
        if said.get("Ready") == "True" and version == self.version and self.argument in arguments:
            return ""
        return f"{node['metadata']['name']}: {said}, {version}, {arguments}"

    async def _nodes(self) -> Mapping[str, Json]:
        return {obj["metadata"]["name"]: obj for obj in await self._workload(NODE.target)}

    async def _workload(self, target: Any) -> list[Json]:
        """Of the cluster's own API, as its administrator sees it; nothing, while it does not answer."""
        secret = await self.retrying_client.get(SECRETS, _NAMESPACE, f"{_NAME}-kubeconfig-admin")
        if secret is None:
            return []
        client = HttpClient(kubeconfig.parse(base64.b64decode(secret["data"]["value"]), origin="the cluster's"))
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return [msgspec.json.decode(item) for item in (await client.list(target, "")).items]
        except (StatusError, OSError, TimeoutError):
            return []
        finally:
            await client.close()

    async def _kept_for_life(self) -> dict[str, Json]:
        """What must never change once it is there; the last tells that it is still the cluster that was begun."""
        kept = {}
        for name in _SECRETS_FOR_LIFE:
            found = await self.retrying_client.get(SECRETS, _NAMESPACE, f"{_NAME}-{name}")
            assert found is not None, f"{name} is gone"
            kept[name] = found["data"]
        async with asyncio.timeout(_PATIENCE_SECONDS):  # the cluster's API may not answer just now
            while not (begun := [obj["metadata"]["uid"] for obj in await self._workload(NAMESPACES) if _is_first(obj)]):
                await asyncio.sleep(_LOOK_SECONDS)
        kept["begun"] = {"uid": begun}
        return kept

    async def _init_nodes(self) -> list[str]:
        found = await self._list(RKE_BOOTSTRAP)
        return [
            obj["metadata"]["name"] for obj in found if obj["metadata"].get("labels", {}).get(names.INIT_NODE) == "true"
        ]

    async def _ids(self) -> list[str]:
        listing = await self.retrying_client.until_answered(partial(self.client.list, MANAGEMENT_CLUSTER.target))
        found = [msgspec.json.decode(item) for item in listing.items]
        return [obj["metadata"]["name"] for obj in found if obj["spec"]["displayName"] == _NAME]

    async def _machines(self, pool: str = "") -> dict[str, Json]:
        found = await self._list(MACHINE)
        return {obj["metadata"]["name"]: obj for obj in found if pool in ("", obj["metadata"]["labels"].get(POOL_NAME))}

    async def _list(self, kind: Kind[Any]) -> list[Json]:
        listing = await self.retrying_client.until_answered(partial(self.client.list, kind.target, _NAMESPACE))
        return [msgspec.json.decode(item) for item in listing.items]

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await ask_again(self.retrying_client, self.client, _MACHINE, _NAMESPACE)

    # applying

    async def _declare(self) -> None:
        await self.retrying_client.patch(CLUSTER.target, _NAMESPACE, _NAME, {"spec": self._spec})

    @property
    def _spec(self) -> Json:
        roles = {SERVERS: {"etcdRole": True, "controlPlaneRole": True}, WORKERS: {"workerRole": True}}
        pools = [
            {
                "name": pool,
                "quantity": quantity,
                "machineConfigRef": {"kind": _CONFIG.name, "name": pool},
                **roles[pool],
            }
            for pool, quantity in self.quantities.items()
        ]
        return {
            "kubernetesVersion": self.version,
            "rkeConfig": {
                "machinePools": pools,
                "machineGlobalConfig": {"kubelet-arg": [self.argument]},
                "upgradeStrategy": {"workerConcurrency": "50%"},
            },
        }


def _is_first(namespace: Json) -> bool:
    return bool(namespace["metadata"]["name"] == "kube-system")
