"""Model cluster made of model hosts: its etcd, its API, and its Nodes.

`tick` advances it: running services join etcd, one step at a time, and register their Nodes; members whose Nodes
request it leave; a Node whose host is down becomes Unknown after a while. Its API answers while a control plane is up,
and accepts writes while etcd has a quorum. While the manager cannot reach it (`unreachable`), only etcd changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from remuda.agent.rules import Result
from remuda.kube import clock
from remuda.kube.client import Client, Target
from remuda.kube.errors import Unreachable
from remuda.kube.objects import Key
from remuda.lab.simulator.etcd import Etcd, EtcdRefused
from remuda.lab.simulator.hosts import ModelHost, Service
from remuda.lab.simulator.workload import ModelWorkload
from remuda.providers.controlplane.render.files import INIT

NODES = Target("v1", "nodes")
UNKNOWN_SECONDS = 40.0  # a Node becomes Unknown after so long without a heartbeat

Json = dict[str, Any]


class Downstream:
    def __init__(self, key: Key, catch_up_seconds: float, witness: Callable[[str], None]) -> None:
        self.key = key
        self.etcd = Etcd(catch_up_seconds, witness)
        self.api = self._new_api()
        self.hosts: dict[Key, ModelHost] = {}
        self.unreachable = False
        self.ending = False  # the whole cluster is being deleted
        self.used = False  # its control plane was initialized once: users may have stored data in it
        self.changes: list[str] = []  # of members, in order
        self._down_since: dict[str, float] = {}
        self._catch_up_seconds = catch_up_seconds
        self._witness = witness

    def begin_anew(self) -> None:
        """Replace a cluster that nobody has used with an empty one."""
        self.api.cut = True
        self.etcd, self.api = Etcd(self._catch_up_seconds, self._witness), self._new_api()

    def _new_api(self) -> ModelWorkload:
        api = ModelWorkload()
        api.cut = True  # until a control plane is up
        api.frozen = lambda: self.etcd.refusal()
        return api

    @property
    def serves(self) -> bool:
        return any(host.is_up and host.has_data and _runs_api(host) for host in self.hosts.values())

    async def dial(self) -> Client:
        if self.api.cut:
            raise Unreachable(f"the API of {self.key} is not up", sent=False)
        return self.api

    def answers(self, url: str) -> bool:
        return any(host.answers and f"//{host.server.address}:" in url for host in self.hosts.values())

    # -- queries of hosts

    def members(self, host: ModelHost) -> Result:
        member = self.etcd.members.get(host.member)
        if not host.is_up or member is None or not member.alive or not self.etcd.has_quorum:
            return Result(1, b"", b"etcd does not answer")
        listed = [
            {"name": one.name, "address": self._address(one.name), "learner": one.learner, "healthy": one.alive}
            for one in sorted(self.etcd.members.values(), key=lambda one: one.name)
        ]
        return Result(0, json.dumps({"members": listed}).encode())

    def is_well(self, host: ModelHost, probe: str) -> bool:
        if not host.is_up or not host.has_data:
            return False
        if probe == "etcd":
            member = self.etcd.members.get(host.member)
            return member is not None and member.alive and self.etcd.has_quorum
        return self.etcd.has_quorum if probe == "kube-apiserver" else True

    def _address(self, member: str) -> str:
        return next((host.server.address for host in self.hosts.values() if host.member == member), "")

    # time

    async def tick(self) -> None:
        for host in self.hosts.values():
            if host.is_up:
                self._join(host)
        self.api.cut = self.unreachable or not self.serves
        if not self.api.cut and self.etcd.has_quorum:
            await self._keep_nodes()

    def _join(self, host: ModelHost) -> None:
        service = host.service
        assert service is not None
        if not service.etcd:
            host.has_data = host.has_data or (self.etcd.has_quorum and self.answers(service.join))
            return
        member = self.etcd.members.get(host.member)
        try:
            if member is not None:
                if not member.alive:
                    self.etcd.recover(host.member)
                    host.stopped = False
                if member.learner:
                    self.etcd.promote(host.member)
                    self.changes.append(f"{host.name} votes")
            elif host.has_data:
                return  # it was removed, and does not return by itself
            elif service.join == INIT:
                self.etcd.bootstrap(host.member)
                self.changes.append(f"{host.name} begins")
            elif self.answers(service.join):
                self.etcd.join(host.member)
                self.changes.append(f"{host.name} joins")
        except EtcdRefused:
            pass
        host.has_data = host.has_data or host.member in self.etcd.members

    # Nodes

    async def _keep_nodes(self) -> None:
        nodes = await self.nodes()
        kept = [host for host in self.hosts.values() if host.service is not None and host.has_data]
        for host in kept:
            assert host.service is not None
            await self._keep_node(host, host.service, nodes.get(host.service.node))
        for name in nodes.keys() - {host.service.node for host in kept if host.service is not None}:
            await self._miss(name, nodes[name])
        for node in nodes.values():
            await self._let_leave(node)
        self._forget_members(await self.nodes())

    async def nodes(self) -> dict[str, Json]:
        listing = await self.api.list(NODES)
        found: list[Json] = [msgspec.json.decode(item) for item in listing.items]
        return {node["metadata"]["name"]: node for node in found}

    async def _keep_node(self, host: ModelHost, service: Service, present: Json | None) -> None:
        name = service.node
        if not host.is_up or (service.etcd and host.member not in self.etcd.members):
            return await self._miss(name, present)
        self._down_since.pop(name, None)
        if present is None:
            await self.api.create(NODES, "", _node(host, service))
            present = (await self.nodes())[name]
        said = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
        if service.etcd:
            said["EtcdIsVoter"] = str(not self.etcd.members[host.member].learner)
        await self._say(name, present, said, service.version)
        return None

    async def _miss(self, name: str, present: Json | None) -> None:
        """Record that the Node sends no heartbeats."""
        since = self._down_since.setdefault(name, clock.time())
        if present is not None and clock.time() - since >= UNKNOWN_SECONDS:
            await self._say(name, present, {"Ready": "Unknown"}, "")

    async def _say(self, name: str, present: Json, said: dict[str, str], version: str) -> None:
        status = present.get("status") or {}
        before = {one["type"]: one for one in status.get("conditions") or ()}
        changed = {
            type: {
                "type": type,
                "status": value,
                "reason": "Simulated",
                "message": "",
                "lastTransitionTime": clock.now(),
            }
            for type, value in said.items()
            if before.get(type, {}).get("status") != value
        }
        news: Json = {"conditions": list((before | changed).values())} if changed else {}
        if version and (status.get("nodeInfo") or {}).get("kubeletVersion") != version:
            news["nodeInfo"] = {"kubeletVersion": version}
        if news:
            await self.api.patch(NODES, "", name, {"status": news}, subresource="status")

    async def _let_leave(self, node: Json) -> None:
        name, notes = node["metadata"]["name"], node["metadata"].get("annotations") or {}
        prefix = next((key.partition("/")[0] for key in notes if key.endswith("cattle.io/remove")), "")
        if not prefix or f"{prefix}/removed-node-name" in notes:
            return
        # As K3s and RKE2 do: they remove the member of a Node with this annotation, and then write its name on the
        # Node.
        members = [one for one in self.etcd.members if one.rpartition("-")[0] == name]
        try:
            for member in members:
                self.etcd.remove(member)
                self.changes.append(f"{name} leaves")
        except EtcdRefused:
            return
        removed = {f"{prefix}/removed-node-name": (members or [name])[0]}
        await self.api.patch(NODES, "", name, {"metadata": {"annotations": removed}})

    def _forget_members(self, nodes: dict[str, Json]) -> None:
        """Remove the members of deleted Nodes."""
        registered = {host.member for host in self.hosts.values() if host.is_up or host.service is not None}
        for member in list(self.etcd.members):
            if member.rpartition("-")[0] not in nodes and member not in registered:
                try:
                    self.etcd.remove(member)
                    self.changes.append(f"{member} is expelled")
                except EtcdRefused:
                    return


def _runs_api(host: ModelHost) -> bool:
    return host.service is not None and host.service.control_plane


def _node(host: ModelHost, service: Service) -> Json:
    """Return the Node as its kubelet registers it."""
    settings = service.settings
    labels = dict(label.split("=", 1) for label in settings.get("node-label") or ())
    labels |= {"kubernetes.io/hostname": service.node}
    if service.etcd:
        labels["node-role.kubernetes.io/etcd"] = "true"
    if service.control_plane:
        labels["node-role.kubernetes.io/control-plane"] = "true"
    arguments = dict(pair.split("=", 1) for pair in settings.get("kubelet-arg") or () if "=" in pair)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": service.node, "labels": labels},
        "spec": {
            "providerID": arguments.get("provider-id", ""),
            "taints": [_taint(taint) for taint in settings.get("node-taint") or ()],
        },
        "status": {
            "addresses": [{"type": "InternalIP", "address": host.server.address}],
            "nodeInfo": {"kubeletVersion": service.version},
        },
    }


def _taint(text: str) -> Json:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}
