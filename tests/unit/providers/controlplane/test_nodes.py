"""Nodes that are there get the labels and taints of their host's config file, and keep those of others."""

from __future__ import annotations

import base64
import json
from typing import Any

from remuda.providers.controlplane import nodes
from remuda.providers.controlplane.nodes import LABELS, TAINTS, patch_for

Json = dict[str, Any]


def plan(labels: list[str], taints: list[str]) -> bytes:
    config = base64.b64encode(json.dumps({"node-label": labels, "node-taint": taints}).encode()).decode()
    path = "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"
    return json.dumps({"files": [{"path": "/etc/other"}, {"path": path, "content": config}]}).encode()


def wanted(labels: list[str], taints: list[str] = []) -> nodes.DesiredNodeMetadata:  # noqa: B006
    found = nodes.wanted(plan(labels, taints))
    assert found is not None
    return found


def node(labels: Json | None = None, taints: list[Json] | None = None, **annotations: str) -> Json:
    named = {key.replace("_", "/").replace("remuda/", "remuda.dev/"): value for key, value in annotations.items()}
    return {"metadata": {"labels": labels or {}, "annotations": named}, "spec": {"taints": taints or []}}


def merged(before: Json, patch: Json) -> Json:
    """What a server makes of it."""
    metadata, changed = before["metadata"], patch.get("metadata", {})

    def into(part: str) -> Json:
        both = {**metadata[part], **changed.get(part, {})}
        return {key: value for key, value in both.items() if value is not None}

    taints = patch["spec"]["taints"] or [] if "spec" in patch else before["spec"]["taints"]
    return {
        "metadata": {"labels": into("labels"), "annotations": into("annotations")},
        "spec": {"taints": taints},
    }


def test_changed_labels_are_patched_and_removed_labels_deleted() -> None:
    first = merged(
        node({"of/others": "x", "tier": "web"}), patch_for(node({"tier": "web"}), wanted(["tier=web", "a=b"]))
    )
    assert first["metadata"]["labels"] == {"of/others": "x", "tier": "web", "a": "b"}
    second = merged(first, patch_for(first, wanted(["tier=api"])))
    assert second["metadata"]["labels"] == {"of/others": "x", "tier": "api"}


def test_up_to_date_node_is_not_patched() -> None:
    desired = wanted(["a=b", "empty="], ["k=v:NoSchedule", "e:NoExecute"])
    there = merged(node(), patch_for(node(), desired))
    assert patch_for(there, desired) == {}


def test_foreign_taints_are_kept_with_time_added() -> None:
    others = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    first = merged(node(taints=[others]), patch_for(node(taints=[others]), wanted([], ["k=v:NoSchedule"])))
    assert first["spec"]["taints"] == [others, {"key": "k", "effect": "NoSchedule", "value": "v"}]
    second = merged(first, patch_for(first, wanted([], ["k=w:NoSchedule"])))
    assert second["spec"]["taints"] == [others, {"key": "k", "effect": "NoSchedule", "value": "w"}]
    third = merged(second, patch_for(second, wanted([])))
    assert third["spec"]["taints"] == [others]


def test_foreign_labels_are_not_removed() -> None:
    present = node({"tier": "of somebody"})
    assert patch_for(present, wanted([])) == {"metadata": {"annotations": {LABELS: "", TAINTS: ""}}}


def test_plan_without_config_file_sets_no_labels() -> None:
    assert nodes.wanted(json.dumps({"files": [{"path": "/etc/other"}]}).encode()) is None
