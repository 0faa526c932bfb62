"""Labels and taints of Nodes that are there: a kubelet sets them once, when it registers, and never again.

What a Node is to have is what the config file of its host says; the plan that the host has applied holds it. A Node
belongs to many, so only what came from a plan is ever taken back: two annotations of the Node remember what that was.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.capi.machine.nodes import differences, identity_of, merged_taints, track, tracked, with_removals
from remuda.capi.machine.workload import NODE, Node
from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.runtime.steps import step

SYNC = step("rkecontrolplane.sync-node", "gives a Node the labels and taints that its host's config file has")

LABELS = "remuda.dev/labels"  # annotations of a Node: keys of what came from a plan
TAINTS = "remuda.dev/taints"

_CONFIG = "/config.yaml.d/50-rancher.yaml"
_NOT_FOUND = 404

Json = dict[str, Any]


class Wanted(msgspec.Struct, frozen=True):
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


def wanted(plan: bytes) -> Wanted | None:
    """What the config file in a plan says; None where there is none, as in the plan of a host that leaves."""
    for file in _decode_plan(plan).files:
        if file.path.endswith(_CONFIG):
            config = _decode_config(base64.b64decode(file.content))
            labels = (label.partition("=") for label in config.labels)
            return Wanted({key: value for key, _, value in labels}, [_taint(text) for text in config.taints])
    return None


def patch_for(node: Json, wanted: Wanted) -> Json:
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
    """Whether something was written. What is known of the Node may be old: it is read again before it is changed."""
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
    except StatusError as error:
        if error.code != _NOT_FOUND:
            raise
        return False
    return True


def _taint(text: str) -> Json:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}
