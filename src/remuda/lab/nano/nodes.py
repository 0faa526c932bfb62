"""Controller of the cluster's Nodes: their membership in etcd, and their readiness.

Runs on the server with the data. When a Node is annotated `etcd.<program>.cattle.io/remove: "true"`, or deleted, its
etcd member is removed; a removal that is not allowed is refused and retried. A Node whose Lease is not renewed becomes
Unknown, and nothing new is scheduled there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from remuda.kube import clock
from remuda.kube.client import Client, Target
from remuda.kube.errors import StatusError
from remuda.lab.nano import passwords
from remuda.lab.nano.flavour import Flavour
from remuda.lab.nano.leader import Leader
from remuda.lab.nano.members import Member, MemberRefused

log = logging.getLogger(__name__)

NODES = Target("v1", "nodes")
LEASES = Target("coordination.k8s.io/v1", "leases")
LEASE_NAMESPACE = "kube-node-lease"

# Annotations by their suffix after etcd.<program>.cattle.io/
REMOVE = "remove"
REMOVED_NAME = "removed-node-name"
MEMBER_NAME = "node-name"
MEMBER_ADDRESS = "node-address"
ETCD_LABEL = "node-role.kubernetes.io/etcd"
IS_VOTER = "EtcdIsVoter"
UNREACHABLE = "node.kubernetes.io/unreachable"

_LOOK_SECONDS = 5.0
_AGAIN_SECONDS = 2.0

Obj = dict[str, Any]
# Hands over the data to another member before this server, which has it, leaves. Raises MemberRefused.
HandOver = Callable[[str], Awaitable[None]]


class Nodes:
    def __init__(
        self,
        client: Client,
        leader: Leader,
        grace_seconds: float,
        hand_over: HandOver,
        flavour: Flavour,
        *,
        etcd: bool = True,
    ) -> None:
        self._client = client
        self._leader = leader
        self._grace = grace_seconds
        self._hand_over = hand_over
        self._flavour = flavour
        self._etcd = etcd  # otherwise the data is in a database of the first server, without members
        self._seen: dict[str, Obj] = {}
        self._wake = asyncio.Event()
        self._leave: set[str] = set()  # members whose Nodes are deleted
        leader.on_change(self._wake.set)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            if self._etcd:
                tasks.create_task(self._keep_etcd())
            tasks.create_task(self._keep_leases())

    # -- watches -------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            try:
                async for change in self._client.watch(NODES):
                    if change.type in ("ADDED", "MODIFIED", "DELETED"):
                        await self._take(change.type, msgspec.json.decode(change.value))
            except StatusError as error:
                log.info("the watch of Nodes ended: %s", error)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _take(self, kind: str, node: Obj) -> None:
        name = node["metadata"]["name"]
        if kind != "DELETED":
            self._seen[name] = node
        else:
            self._seen.pop(name, None)
            if (member := said(node, MEMBER_NAME, self._flavour)) and not said(node, REMOVED_NAME, self._flavour):
                self._leave.add(member)
            try:
                await passwords.forget(self._client, self._flavour.name, name)
            except StatusError as error:
                log.warning("failed to delete node password of %s: %s", name, error)
        self._wake.set()

    # -- etcd ----------------------------------------------------------------------------------------------------

    async def _keep_etcd(self) -> None:
        while True:
            self._wake.clear()
            if await self._all_of_etcd():
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                await self._wake.wait()

    async def _all_of_etcd(self) -> bool:
        """Reconcile all etcd members with their Nodes; return whether something has failed and must be retried."""
        waiting = await self._finish_removals()
        for member in self._leader.members.members:
            try:
                node = self._seen.get(member.node)
                if node is not None and asked_to_leave(node, member.name, self._flavour):
                    await self._remove(member, node)
                elif member.name in self._leave and node is None:
                    await self._remove(member, None)
                elif node is not None and (patch := etcd_patch(node, member, self._flavour)):
                    # the condition follows with the event of this write
                    await self._client.patch(NODES, "", member.node, patch)
                elif node is not None and (status := voter_patch(node, member)):
                    await self._client.patch(NODES, "", member.node, status, kind="strategic", subresource="status")
            except MemberRefused as refused:
                log.warning("cannot remove %s now: %s", member.name, refused)
                waiting = True
            except StatusError as error:
                log.info("cannot write the etcd annotations of Node %s: %s", member.node, error)
                waiting = True
        return waiting

    async def _finish_removals(self) -> bool:
        """Mark removed members on their Nodes where that write failed before; return whether one must be retried."""
        waiting = False
        for node in list(self._seen.values()):
            name = said(node, MEMBER_NAME, self._flavour)
            if name and asked_to_leave(node, name, self._flavour) and self._leader.members.find(name) is None:
                try:
                    await mark_removed(self._client, node["metadata"]["name"], name, self._flavour)
                except StatusError as error:
                    log.info("cannot yet mark Node %s as removed from etcd: %s", node["metadata"]["name"], error)
                    waiting = True
        return waiting

    async def _remove(self, member: Member, node: Obj | None) -> None:
        if member.name == self._leader.members.leader:
            await self._hand_over(member.node if node is not None else "")
            return
        self._leader.remove(member.name)
        self._leave.discard(member.name)
        if node is not None:
            await mark_removed(self._client, member.node, member.name, self._flavour)

    # -- heartbeats ----------------------------------------------------------------------------------------------

    async def _keep_leases(self) -> None:
        """Check Leases by the time at which a renewal was seen, not by its timestamp: clocks differ, and our own
        outages must not count.
        """
        seen = Renewals()
        while True:
            await asyncio.sleep(min(_LOOK_SECONDS, self._grace / 4))
            now = asyncio.get_running_loop().time()
            if self._leader.refusing():
                seen.excuse(now)
                continue
            try:
                for item in (await self._client.list(LEASES, LEASE_NAMESPACE)).items:
                    lease = msgspec.json.decode(item)
                    seen.take(lease["metadata"]["name"], (lease.get("spec") or {}).get("renewTime") or "", now)
                for name, node in list(self._seen.items()):
                    if seen.silence(name, now) > self._grace and ready_status(node) != "Unknown":
                        await self._mark_unknown(node)
            except StatusError as error:
                log.info("cannot check Nodes: %s", error)

    async def _mark_unknown(self, node: Obj) -> None:
        name = node["metadata"]["name"]
        log.warning("Node %s has not reported for %g s", name, self._grace)
        taints = [one for one in node["spec"].get("taints") or () if one["key"] != UNREACHABLE]
        added = [{"key": UNREACHABLE, "effect": effect, "timeAdded": clock.now()} for effect in _EFFECTS]
        await self._client.patch(NODES, "", name, {"spec": {"taints": [*taints, *added]}})
        # Last, because a living kubelet reacts at once, and removes the taints that exist then.
        await self._client.patch(NODES, "", name, unknown_patch(), kind="strategic", subresource="status")


_EFFECTS = ("NoSchedule", "NoExecute")


async def mark_removed(client: Client, node: str, member: str, flavour: Flavour) -> None:
    values = {REMOVED_NAME: member, MEMBER_NAME: None, MEMBER_ADDRESS: None}
    annotations = {flavour.etcd(name): value for name, value in values.items()}
    await client.patch(NODES, "", node, {"metadata": {"annotations": annotations, "labels": {ETCD_LABEL: None}}})


def said(node: Obj, name: str, flavour: Flavour) -> str:
    """Return the value of an annotation about etcd; empty if there is none."""
    return str((node["metadata"].get("annotations") or {}).get(flavour.etcd(name), ""))


def asked_to_leave(node: Obj, member: str, flavour: Flavour) -> bool:
    """Return whether this member was asked to leave. True even if the Node says that it has left: a failed hand-over
    may have written that. A newer member of the Node is another one.
    """
    return said(node, REMOVE, flavour) == "true" and (said(node, REMOVED_NAME, flavour) or member) == member


def etcd_patch(node: Obj, member: Member, flavour: Flavour) -> Obj:
    """Return the patch that adds a member's missing annotations and label to its Node; empty: nothing is missing."""
    meta = node["metadata"]
    wanted = {flavour.etcd(MEMBER_NAME): member.name, flavour.etcd(MEMBER_ADDRESS): member.address}
    annotations = {k: v for k, v in wanted.items() if (meta.get("annotations") or {}).get(k) != v}
    labels = {} if (meta.get("labels") or {}).get(ETCD_LABEL) == "true" else {ETCD_LABEL: "true"}
    if not annotations and not labels:
        return {}
    return {"metadata": {"annotations": annotations, "labels": labels}}


def voter_patch(node: Obj, member: Member) -> Obj:
    conditions = (node.get("status") or {}).get("conditions") or ()
    known = next((one for one in conditions if one["type"] == IS_VOTER), None)
    status = "False" if member.learner else "True"
    if known is not None and known["status"] == status:
        return {}
    told = (
        ("MemberIsLearner", "Node has not been promoted to voting member of the etcd cluster")
        if member.learner
        else ("MemberNotLearner", "Node is a voting member of the etcd cluster")
    )
    condition = {
        "type": IS_VOTER,
        "status": status,
        "reason": told[0],
        "message": told[1],
        "lastHeartbeatTime": clock.now(),
        "lastTransitionTime": clock.now(),
    }
    return {"status": {"conditions": [condition]}}


class Renewals:
    """Times at which the Lease of each Node was seen to change."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, float]] = {}

    def take(self, name: str, renewed: str, now: float) -> None:
        if name not in self._seen or self._seen[name][0] != renewed:
            self._seen[name] = (renewed, now)

    def excuse(self, now: float) -> None:
        """Restart the silence of all Nodes, after a time in which none could have renewed its Lease."""
        self._seen = {name: (renewed, now) for name, (renewed, _) in self._seen.items()}

    def silence(self, name: str, now: float) -> float:
        """Return the seconds of silence. For an unknown Node they count from the first call."""
        return now - self._seen.setdefault(name, ("", now))[1]


def ready_status(node: Obj) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((str(one["status"]) for one in conditions if one["type"] == "Ready"), "")


def unknown_patch() -> Obj:
    now = clock.now()
    return {
        "status": {
            "conditions": [
                {
                    "type": kind,
                    "status": "Unknown",
                    "reason": "NodeStatusUnknown",
                    "message": "Kubelet stopped posting node status.",
                    "lastTransitionTime": now,
                }
                for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
            ]
        }
    }
