"""Members of etcd that leave, by what the distribution offers: an annotation of their Node.

The planner has judged by what it was told; before the one act that cannot be taken back, the Nodes are read once more
from the cluster itself, and where they do not show a majority that stays, nothing is done.
"""

from __future__ import annotations

from collections.abc import Sequence

from remuda.capi.machine.workload import NODE, Node
from remuda.kube import conditions
from remuda.kube.client import Client, list_all
from remuda.kube.errors import ignore_not_found
from remuda.kube.wait import Wait
from remuda.providers.controlplane.hosts import ETCD_IS_VOTER, ETCD_NODE
from remuda.providers.shared.distros import Distro
from remuda.runtime.steps import step

LEAVE = step("rkecontrolplane.leave-etcd", "asks the distribution to remove the member of etcd on a node that goes")
EXPEL = step("rkecontrolplane.expel-member", "deletes the Node of a member of etcd that belongs to no Machine")
FORGET = step("rkecontrolplane.forget-node", "deletes a Node that is not ready and whose Machine is gone")

_PAGE = 100


async def leave(client: Client, distro: Distro, node_name: str) -> Wait | None:
    """Ask the member to leave etcd. Return why it was not asked, or None if it was."""
    nodes = await _etcd_nodes(client)
    leaver = next((node for node in nodes if node.metadata.name == node_name), None)
    if leaver is None:
        return None  # without a Node there is nobody to ask; the planner waits until the members agree
    if risk := majority_at_risk(nodes, leaver, distro):
        return Wait(reason="QuorumAtRisk", on=f"Node {node_name}", missing=risk, then="it is looked at again")
    async with LEAVE:
        patch = {"metadata": {"annotations": {f"{distro.etcd_annotation}/remove": "true"}}}
        await client.patch(NODE.target, "", node_name, patch)
    return None


async def expel(client: Client, node_name: str) -> None:
    async with EXPEL:
        await _delete(client, node_name)


async def forget(client: Client, node_name: str) -> None:
    async with FORGET:
        await _delete(client, node_name)


async def _delete(client: Client, node_name: str) -> None:
    with ignore_not_found():
        await client.delete(NODE.target, "", node_name)


def majority_at_risk(nodes: Sequence[Node], leaver: Node, distro: Distro) -> str:
    """Return why the other members could not go on without this one; empty if they can. A leaver that is not ready does
    not wait for another member that was asked to leave before and still answers: it may be what prevents that one from
    leaving."""
    others = [node for node in nodes if node is not leaver and not _has_left(node, distro)]
    going = [node for node in others if _is_leaving(node, distro)]
    if going and leaver.ready:
        return f"the member of Node {going[0].metadata.name} is leaving: one at a time"
    voters = [node for node in others if _is_voter(node)]
    return _too_few(voters) or _too_few([node for node in voters if node not in going])


def _too_few(staying: Sequence[Node]) -> str:
    """Return why these Nodes alone could not be the members of etcd; empty if they can."""
    if not staying:
        return "no other member of etcd would be left"
    healthy = [node for node in staying if node.ready]
    majority = len(staying) // 2 + 1
    if len(healthy) < majority:
        away = ", ".join(sorted(node.metadata.name for node in staying if node not in healthy))
        return f"of the {len(staying)} members that stay only {len(healthy)} are well, {majority} must be; not: {away}"
    return ""


async def _etcd_nodes(client: Client) -> list[Node]:
    listing = await list_all(client, NODE.target, label_selector=ETCD_NODE, page=_PAGE)
    return [NODE.decode(item) for item in listing.items]


def _is_voter(node: Node) -> bool:
    found = node.condition(ETCD_IS_VOTER)
    return found is not None and found.status == conditions.TRUE


def _is_leaving(node: Node, distro: Distro) -> bool:
    return node.metadata.annotations.get(f"{distro.etcd_annotation}/remove") == "true"


def _has_left(node: Node, distro: Distro) -> bool:
    return bool(node.metadata.annotations.get(f"{distro.etcd_annotation}/removed-node-name"))
