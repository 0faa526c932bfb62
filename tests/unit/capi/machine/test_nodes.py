"""What reaches the Node from its Machine, and that nothing of anybody else's is touched."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import names
from remuda.capi.machine.nodes import NodeSync, desired, patch_for
from remuda.capi.types import MachineTaint
from remuda.kube.patches import apply_merge_patch
from tests.unit.capi.machine.objects import cluster, machine, owned_by

Json = dict[str, Any]


def node(**meta: Any) -> Json:
    taints = meta.pop("taints", None)
    raw: Json = {"metadata": {"name": "n-1", "resourceVersion": "7", **meta}}
    return raw | ({"spec": {"taints": taints}} if taints is not None else {})


def sync(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **changes: Any) -> NodeSync:
    options = {
        key: changes.pop(key)
        for key in list(changes)
        if key in ("interruptible", "outdated", "more_labels", "more_annotations")
    }
    mine = machine(meta={"labels": labels or {}, "annotations": annotations or {}}, **changes)
    return desired(mine, cluster(), **options)


def synced(raw: Json, wanted: NodeSync) -> Json:
    patch = patch_for(raw, wanted)
    result: Json = apply_merge_patch(raw, patch)
    return result


def taints(raw: Json) -> list[str]:
    return [
        f"{one['key']}={one.get('value', '')}:{one['effect']}" for one in (raw.get("spec") or {}).get("taints") or []
    ]


@pytest.mark.parametrize(
    ("label", "reaches"),
    [
        ("node-role.kubernetes.io/gpu", True),
        ("node-restriction.kubernetes.io/zone", True),
        ("team.node-restriction.kubernetes.io/zone", True),
        ("node.cluster.x-k8s.io/pool", True),
        ("a.node.cluster.x-k8s.io/pool", True),
        ("xnode.cluster.x-k8s.io/pool", False),
        ("sub.node-role.kubernetes.io/gpu", False),
        ("cluster.x-k8s.io/cluster-name", False),
        ("app", False),
        ("company.example/rack", True),
    ],
)
def test_only_allowed_labels_are_synced_to_node(label: str, reaches: bool) -> None:
    wanted = sync({label: "x"}, more_labels=[re.compile(r"^company\.example/")])
    assert (label in synced(node(), wanted)["metadata"].get("labels", {})) == reaches


def test_only_allowed_annotations_are_synced_to_node() -> None:
    wanted = sync(
        annotations={"node.cluster.x-k8s.io/a": "1", "company.example/b": "2", "other": "3"},
        more_annotations=[re.compile("company")],
    )
    found = synced(node(), wanted)["metadata"]["annotations"]
    assert found["node.cluster.x-k8s.io/a"] == "1"
    assert found["company.example/b"] == "2"
    assert "other" not in found


def test_node_annotations_name_cluster_machine_and_owner() -> None:
    mine = machine(meta=owned_by("MachineSet", "ms"))
    found = synced(node(), desired(mine, cluster()))["metadata"]["annotations"]
    assert {key: found[f"cluster.x-k8s.io/{key}"] for key in ("cluster-name", "cluster-namespace", "machine")} == {
        "cluster-name": "c",
        "cluster-namespace": "ns",
        "machine": "m-1",
    }
    assert (found[names.NODE_OWNER_KIND], found[names.NODE_OWNER_NAME]) == ("MachineSet", "ms")


def test_node_patch_has_resource_version_and_is_empty_when_unchanged() -> None:
    wanted = sync({"node.cluster.x-k8s.io/a": "1"})
    patch = patch_for(node(), wanted)
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch_for(apply_merge_patch(node(), patch), wanted) == {}


def test_removed_machine_labels_leave_node_and_foreign_labels_stay() -> None:
    before = synced(
        node(labels={"mine": "x"}, annotations={"theirs": "y"}),
        sync({"node.cluster.x-k8s.io/a": "1", "node.cluster.x-k8s.io/b": "2"}, {"node.cluster.x-k8s.io/n": "3"}),
    )
    after = synced(before, sync({"node.cluster.x-k8s.io/b": "4"}))
    assert after["metadata"]["labels"] == {"mine": "x", "node.cluster.x-k8s.io/b": "4"}
    assert after["metadata"]["annotations"]["theirs"] == "y"
    assert "node.cluster.x-k8s.io/n" not in after["metadata"]["annotations"]
    assert after["metadata"]["annotations"][names.NODE_LABELS_FROM_MACHINE] == "node.cluster.x-k8s.io/b"


def test_changed_node_label_is_restored() -> None:
    wanted = sync({"node.cluster.x-k8s.io/a": "1"})
    before = synced(node(), wanted)
    before["metadata"]["labels"]["node.cluster.x-k8s.io/a"] = "9"
    assert synced(before, wanted)["metadata"]["labels"]["node.cluster.x-k8s.io/a"] == "1"


def test_interruptible_machine_sets_node_label() -> None:
    assert synced(node(), sync(interruptible=True))["metadata"]["labels"] == {names.INTERRUPTIBLE: ""}


def test_uninitialized_taint_is_removed_and_foreign_taints_stay() -> None:
    theirs = {"key": "theirs", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    before = node(taints=[{"key": names.UNINITIALIZED_TAINT, "effect": "NoSchedule"}, theirs])
    assert synced(before, sync())["spec"]["taints"] == [theirs]


def test_removing_last_taint_sets_taints_to_null() -> None:
    before = node(taints=[{"key": names.UNINITIALIZED_TAINT, "effect": "NoSchedule"}])
    assert patch_for(before, sync())["spec"] == {"taints": None}


def taint(key: str, propagation: str = "Always", value: str = "") -> Json:
    return {"key": key, "effect": "NoSchedule", "propagation": propagation} | ({"value": value} if value else {})


def test_always_propagated_taints_are_restored_updated_and_removed() -> None:
    before = synced(node(), sync(taints=[taint("a"), taint("b", value="1")]))
    assert taints(before) == ["a=:NoSchedule", "b=1:NoSchedule"]
    before["spec"]["taints"] = [before["spec"]["taints"][1]]
    after = synced(before, sync(taints=[taint("a"), taint("b", value="2")]))
    assert sorted(taints(after)) == ["a=:NoSchedule", "b=2:NoSchedule"]
    assert taints(synced(after, sync())) == []


def test_on_initialization_taints_are_set_once() -> None:
    wanted = sync(taints=[taint("once", "OnInitialization")])
    before = synced(node(), wanted)
    assert taints(before) == ["once=:NoSchedule"]
    before["spec"] = {}
    assert taints(synced(before, wanted)) == []


def test_on_initialization_taint_is_not_removed() -> None:
    before = synced(node(), sync(taints=[taint("once", "OnInitialization")]))
    assert taints(synced(before, sync())) == ["once=:NoSchedule"]


def test_outdated_node_gets_prefer_no_schedule_taint() -> None:
    before = synced(node(), sync(outdated=True))
    assert taints(before) == [f"{names.OUTDATED_REVISION_TAINT}=:PreferNoSchedule"]
    assert patch_for(before, sync(outdated=True)) == {}
    assert taints(synced(before, sync())) == []


keys = st.sampled_from(["node.cluster.x-k8s.io/a", "node.cluster.x-k8s.io/b", "foreign"])
metadata = st.dictionaries(keys, st.sampled_from(["", "1", "2"]))
machine_taints = st.lists(
    st.builds(
        taint, st.sampled_from("ab"), st.sampled_from(["Always", "OnInitialization"]), st.sampled_from(["", "v"])
    ),
    unique_by=lambda one: one["key"],
)
foreign_taints = st.lists(
    st.builds(lambda key: {"key": key, "effect": "NoExecute"}, st.sampled_from("xyz")), unique_by=lambda one: one["key"]
)


@given(metadata, metadata, machine_taints, st.lists(st.tuples(metadata, machine_taints), max_size=3), foreign_taints)
def test_node_sync_is_idempotent_and_keeps_foreign_labels_and_taints(
    labels: Json, present: Json, wanted: list[Json], earlier: list[tuple[Json, list[Json]]], foreign: list[Json]
) -> None:
    theirs = {f"theirs/{key}": value for key, value in present.items()}
    raw = node(labels=theirs, taints=foreign)
    for old_labels, old_taints in earlier:
        raw = synced(raw, sync(old_labels, taints=old_taints))
    last = sync(labels, taints=wanted)
    raw = synced(raw, last)
    assert patch_for(raw, last) == {}
    ours = {key: value for key, value in labels.items() if key != "foreign"}
    assert raw["metadata"].get("labels", {}) == theirs | ours
    assert [one for one in (raw["spec"].get("taints") or []) if one["effect"] == "NoExecute"] == foreign
    enforced = {one["key"] for one in wanted if one["propagation"] == "Always"}
    found = {one["key"] for one in (raw["spec"].get("taints") or []) if one["effect"] == "NoSchedule"}
    assert enforced <= found


def test_desired_taints_are_read_from_machine_spec() -> None:
    assert sync(taints=[taint("a", value="v")]).taints == [
        MachineTaint(key="a", effect="NoSchedule", propagation="Always", value="v")
    ]
