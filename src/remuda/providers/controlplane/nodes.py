"""Writes to the Nodes of a cluster: labels and taints, requests to leave etcd, and deletions.

A kubelet sets labels and taints only once, when it registers. The desired ones are those in the config file of the
host, read from the plan that the host has applied. Other users write to Nodes too, so only values that came from a plan
are ever removed: two annotations of the Node record them.

A member leaves etcd by what the distribution offers: an annotation of its Node. The planner has judged by reports;
before the one act that cannot be undone, the Nodes are read once more from the cluster itself, and nothing is done
unless they show that a majority stays.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.capi.machine.nodes import differences, identity_of, merged_taints, track, tracked, with_removals
from remuda.capi.machine.workload import NODE, Node
from remuda.kube import conditions
from remuda.kube.client import Client, list_all
from remuda.kube.errors import NotFound, ignore_not_found
from remuda.kube.wait import Wait
from remuda.providers.controlplane.hosts import ETCD_IS_VOTER, ETCD_NODE
from remuda.providers.shared.distros import Distro
from remuda.runtime.steps import step

SYNC = step("rkecontrolplane.sync-node", "sets the labels and taints of a Node as in its host's config file")

LABELS = "remuda.dev/labels"  # annotations of a Node: keys of what came from a plan
TAINTS = "remuda.dev/taints"

_CONFIG = "/config.yaml.d/50-rancher.yaml"

Json = dict[str, Any]
LEAVE = step("rkecontrolplane.leave-etcd", "asks the distribution to remove the etcd member of a node")
EXPEL = step("rkecontrolplane.expel-member", "deletes the Node of an etcd member that belongs to no Machine")
FORGET = step("rkecontrolplane.forget-node", "deletes a Node that is not ready and whose Machine was deleted")

_PAGE = 100


class DesiredNodeMetadata(msgspec.Struct, frozen=True):
    labels: Mapping[str, str]
    taints: Sequence[Json]


class _File(msgspec.Struct):
    path: str = ""
    content: str = ""


class _Plan(msgspec.Struct):
    files: list[_File] = []


class _Config(msgspec.Struct):
    labels: list[str] = msgspec.field(name="node-label", default_factory=list)
    taints: list[str] = msgspec.field(name="node-taint", default_factory=list)


_decode_plan = msgspec.json.Decoder(_Plan).decode
_decode_config = msgspec.json.Decoder(_Config).decode


def wanted(plan: bytes) -> DesiredNodeMetadata | None:
    """Return the labels and taints in a plan's config file; None if it has no such file, as in the plan of a leaving
    host."""
    for file in _decode_plan(plan).files:
        if file.path.endswith(_CONFIG):
            config = _decode_config(base64.b64decode(file.content))
            labels = (label.partition("=") for label in config.labels)
            return DesiredNodeMetadata(
                {key: value for key, _, value in labels}, [_taint(text) for text in config.taints]
            )
    return None


def patch_for(node: Json, wanted: DesiredNodeMetadata) -> Json:
    """A merge patch; empty when the Node is as it should be."""
    metadata = node["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    present = (node.get("spec") or {}).get("taints") or []
    mine = {identity_of(taint): taint for taint in wanted.taints}
    changed = {
        "labels": differences(labels, with_removals(annotations.get(LABELS), wanted.labels)),
        "annotations": differences(annotations, {LABELS: track(wanted.labels), TAINTS: track(list(mine))}),
    }
    metadata_patch = {part: news for part, news in changed.items() if news}
    patch: Json = {"metadata": metadata_patch} if metadata_patch else {}
    taints = merged_taints(present, mine, tracked(annotations.get(TAINTS)) - mine.keys())
    if taints != present:
        patch["spec"] = {"taints": taints or None}
    return patch


async def keep(client: Client, node: Node, plan: bytes) -> bool:
    """Patch the Node and return whether something was written. The Node passed in may be stale, so it is read again
    before it is changed."""
    desired = wanted(plan)
    if desired is None or not patch_for(msgspec.to_builtins(node), desired):
        return False
    try:
        present: Json = msgspec.json.decode(await client.get(NODE.target, "", node.metadata.name))
        patch = patch_for(present, desired)
        if not patch:
            return False
        patch.setdefault("metadata", {})["resourceVersion"] = present["metadata"]["resourceVersion"]
        async with SYNC:
            await client.patch(NODE.target, "", node.metadata.name, patch)
    except NotFound:
        return False
    return True


def _taint(text: str) -> Json:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


# ---- members of etcd ----------------------------------------------------------------------------------------------


async def leave(client: Client, distro: Distro, node_name: str) -> Wait | None:
    """Ask the member to leave etcd. Return why it was not asked, or None if it was."""
    # Not from a cache: a member that leaves because of outdated facts cannot be brought back.
    nodes = await _etcd_nodes(client)
    leaver = next((node for node in nodes if node.metadata.name == node_name), None)
    if leaver is None:
        return None  # without a Node no member can be asked; the planner waits until the members agree
    if risk := majority_at_risk(nodes, leaver, distro):
        return Wait(reason="QuorumAtRisk", on=f"Node {node_name}", missing=risk, then="the controller checks again")
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
        return f"only {len(healthy)} of {len(staying)} other members are healthy, {majority} must be; unhealthy: {away}"
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
