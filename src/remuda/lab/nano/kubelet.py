"""Stand-in of a kubelet: it registers the Node, renews its Lease, and pretends to run the Pods that are bound to it.

Such a Pod is Running at once and, when deleted, removed at once; nothing is ever started. A deleted Node is registered
again only when nano restarts, as with a kubelet. A node uses one API server at a time, and the next one if that does
not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from remuda.kube import clock
from remuda.kube.client import Client, Target
from remuda.kube.errors import AlreadyExists, Conflict, NotFound, StatusError
from remuda.kube.http import HttpClient
from remuda.kube.kubeconfig import ClientConfig
from remuda.lab.nano import facts as node_facts
from remuda.lab.nano.facts import NodeDescription
from remuda.lab.nano.nodes import LEASE_NAMESPACE, LEASES, NODES, UNREACHABLE, ready_status

log = logging.getLogger(__name__)

PODS = Target("v1", "pods")
LEASE_SECONDS = 40
_RENEW_SECONDS = 10.0
_AGAIN_SECONDS = 1.0

Obj = dict[str, Any]
Work = Callable[[Client], Awaitable[None]]
_TIMEOUT_SECONDS = 10.0


class Kubelet:
    """Kubelet. `access` creates an API connection for each task."""

    def __init__(self, facts: NodeDescription, access: Callable[[], ApiAccess]) -> None:
        self.registered = asyncio.Event()
        self._facts = facts
        self._access = access

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._live())
            await self.registered.wait()
            tasks.create_task(self._again_and_again(self._watch_node))
            tasks.create_task(self._again_and_again(self._watch_pods))

    # -- registration --------------------------------------------------------------------------------------------

    async def _register(self, client: Client) -> None:
        wanted = node_facts.node(self._facts)
        try:
            await client.create(NODES, "", wanted)
            log.warning("Node %s is registered", self._facts.name)
        except AlreadyExists:
            await self._refresh(client, msgspec.json.decode(await client.get(NODES, "", self._facts.name)))
        await self._renew_once(client)

    async def _refresh(self, client: Client, found: Obj) -> None:
        """Update an existing Node: set what a kubelet sets at its start, and keep all other changes."""
        labels = node_facts.standard_labels(self._facts)
        labels.pop(node_facts.ETCD_LABEL, None)  # once the Node exists, the cluster decides
        patch: Obj = {"metadata": {"labels": labels, "annotations": self._facts.annotations}}
        if not found["spec"].get("providerID"):
            patch["spec"] = {"providerID": self._facts.provider_id}
        await client.patch(NODES, "", self._facts.name, patch)
        await self._report(client, found)

    async def _report(self, client: Client, found: Obj) -> None:
        status = node_facts.status(self._facts, found.get("status") or {})
        name = self._facts.name
        addresses = status.pop("addresses")  # a strategic patch would keep removed addresses
        await client.patch(NODES, "", name, {"status": status}, kind="strategic", subresource="status")
        if (found.get("status") or {}).get("addresses") != addresses:
            await client.patch(NODES, "", name, {"status": {"addresses": addresses}}, subresource="status")
        taints = found["spec"].get("taints") or []
        kept = [taint for taint in taints if taint["key"] != UNREACHABLE]
        if kept != taints:
            await client.patch(NODES, "", name, {"spec": {"taints": kept or None}})

    # -- heartbeats ----------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        access = self._access()
        try:
            await _persist(access, self._register)
            self.registered.set()
            while True:
                await asyncio.sleep(_RENEW_SECONDS)
                await _persist(access, self._renew_once)
        finally:
            await access.close()

    async def _renew_once(self, client: Client) -> None:
        name = self._facts.name
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": clock.now_micro()}
        try:
            await client.patch(LEASES, LEASE_NAMESPACE, name, {"spec": spec})
        except NotFound:
            await self._create_lease(client, spec)

    async def _create_lease(self, client: Client, spec: Obj) -> None:
        name = self._facts.name
        try:
            node = msgspec.json.decode(await client.get(NODES, "", name))
        except NotFound:
            return  # the Node was deleted, and its Lease does not matter
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
        meta = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
        await client.create(LEASES, LEASE_NAMESPACE, {"metadata": meta, "spec": spec})

    # -- changes by other clients --------------------------------------------------------------------------------

    async def _watch_node(self, client: Client) -> None:
        """Watch this host's Node, and report it as ready again whenever another client marked it as not ready."""
        async for change in client.watch(NODES, field_selector=f"metadata.name={self._facts.name}"):
            if change.type not in ("ADDED", "MODIFIED"):
                continue
            node = msgspec.json.decode(change.value)
            if ready_status(node) != "True":
                await self._renew_once(client)
                await self._report(client, node)

    async def _watch_pods(self, client: Client) -> None:
        async for change in client.watch(PODS, field_selector=f"spec.nodeName={self._facts.name}"):
            if change.type in ("ADDED", "MODIFIED"):
                await self._pretend(client, msgspec.json.decode(change.value))

    async def _pretend(self, client: Client, pod: Obj) -> None:
        meta = pod["metadata"]
        with contextlib.suppress(NotFound, AlreadyExists, Conflict):
            if meta.get("deletionTimestamp"):
                await client.delete(PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace_period_seconds=0)
            elif (pod.get("status") or {}).get("phase") in (None, "", "Pending"):
                status = {"status": running(pod, self._facts.address)}
                await client.patch(
                    PODS, meta["namespace"], meta["name"], status, kind="strategic", subresource="status"
                )

    # -- changing servers ----------------------------------------------------------------------------------------

    async def _again_and_again(self, work: Work) -> None:
        access = self._access()
        try:
            while True:
                await _persist(access, work)
                await asyncio.sleep(_AGAIN_SECONDS)
        finally:
            await access.close()


async def _persist(access: ApiAccess, work: Work) -> None:
    """Retry an action until it succeeds, on any server."""
    said = ""
    while True:
        client = access.client()
        if client is not None:
            try:
                await work(client)
                return
            except StatusError as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("cannot reach the API server of this cluster: %s", said)
                if error.code >= 500:
                    await access.failed(error)
        await asyncio.sleep(_AGAIN_SECONDS)


def running(pod: Obj, address: str) -> Obj:
    """Return the status of a Pod as if it ran."""
    now = clock.now()
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    containers = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for container in pod["spec"].get("containers") or ()
    ]
    return {
        "phase": "Running",
        "message": "nano runs no Pods: nothing of this one is really there",
        "startTime": now,
        "hostIP": address,
        "hostIPs": [{"ip": address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": conditions,
        "containerStatuses": containers,
    }


class ApiAccess:
    """API connection of one task.

    Tasks share none, because closing a connection leaves its other readers waiting. `servers` is called again after
    each failure.
    """

    def __init__(self, servers: Callable[[], Sequence[str]], ca: bytes, certificate: Path, key: Path) -> None:
        self._servers = servers
        self._ca = ca
        self._certificate = certificate
        self._key = key
        self._client: HttpClient | None = None
        self._server = ""

    def client(self) -> HttpClient | None:
        """Return the client; None if there is no server."""
        if self._client is None:
            servers = list(self._servers())
            if not servers:
                return None
            after = servers.index(self._server) + 1 if self._server in servers else 0
            self._server = servers[after % len(servers)]
            access = ClientConfig(
                server=self._server,
                origin="this node",
                ca=self._ca,
                client_certificate=self._certificate,
                client_key=self._key,
            )
            self._client = HttpClient(access, field_manager="nano", timeout_seconds=_TIMEOUT_SECONDS)
        return self._client

    async def failed(self, why: object) -> None:
        """Switch to another server for the next request, if there is one."""
        log.info("%s has failed: %s", self._server, why)
        await self.close()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
