"""Labels and taints of existing Nodes: a kubelet sets them only once, when it registers.

The desired labels and taints are those in the config file of the host, read from the plan that the host has applied.
Other users write to Nodes too, so only values that came from a plan are ever removed: two annotations of the Node
record them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.capi.machine.nodes import differences, identity_of, merged_taints, track, tracked, with_removals
from remuda.capi.machine.workload import NODE, Node
from remuda.kube.client import Client
from remuda.kube.errors import NotFound
from remuda.runtime.steps import step

SYNC = step("rkecontrolplane.sync-node", "gives a Node the labels and taints that its host's config file has")

LABELS = "remuda.dev/labels"  # annotations of a Node: keys of what came from a plan
TAINTS = "remuda.dev/taints"

_CONFIG = "/config.yaml.d/50-rancher.yaml"

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
    """Return the labels and taints in a plan's config file; None if it has no such file, as in the plan of a leaving
    host."""
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
