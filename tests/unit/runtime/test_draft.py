"""Drafts: what has changed and nothing else, pure and on the engine."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.client import Client, Target
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key, OwnerReference
from remuda.kube.patches import apply_merge_patch
from remuda.runtime.draft import Draft, save
from remuda.runtime.steps import step
from tests.unit.runtime.things import CONFIG_MAP, NODES, config_map

SAVE = step("test.save", "saves a draft")

Json = dict[str, Any]

VALUES = st.recursive(
    st.booleans() | st.integers(-3, 3) | st.sampled_from(("", "x", "y")),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("pqr"), inner, max_size=3),
    max_leaves=6,
)
PARTS = st.dictionaries(st.sampled_from("pqr"), VALUES, max_size=3)


def whole(spec: Json | None, status: Json | None, **metadata: Any) -> Json:
    obj: Json = {"apiVersion": "v1", "kind": "Thing"}
    obj["metadata"] = {"namespace": "ns", "name": "n", "uid": "u", "resourceVersion": "7", **metadata}
    if spec is not None:
        obj["spec"] = spec
    if status is not None:
        obj["status"] = status
    return obj


def draft(spec: Json | None = None, status: Json | None = None, **metadata: Any) -> Draft:
    return Draft(CONFIG_MAP.target, msgspec.json.encode(whole(spec, status, **metadata)))


@given(before=st.none() | PARTS, after=PARTS, status_before=st.none() | PARTS, status_after=PARTS)
def test_draft_patches_transform_base_into_desired_object(
    before: Json | None, after: Json, status_before: Json | None, status_after: Json
) -> None:
    changed = draft(before, status_before)
    changed.obj["spec"] = after
    changed.obj["status"] = status_after
    patch, status = changed.patches()
    arrived = apply_merge_patch(apply_merge_patch(changed.base, patch), status)
    wanted = whole(after, status_after)
    for part, was in (("spec", before), ("status", status_before)):
        if was is None and not wanted[part]:
            del wanted[part]
    assert arrived == wanted
    assert "status" not in patch
    assert set(status) <= {"status"}


@given(spec=st.none() | PARTS, status=st.none() | PARTS)
def test_unchanged_draft_has_no_patches(spec: Json | None, status: Json | None) -> None:
    untouched = draft(spec, status)
    assert untouched.spec == (spec or {})
    assert untouched.status == (status or {})
    untouched.set_label("gone", None)
    assert not untouched.remove_finalizer("none")
    assert not untouched.remove_owner("nobody")
    assert untouched.patches() == ({}, {})


def test_draft_keeps_unknown_fields_and_distinguishes_zero_from_null() -> None:
    changed = draft({"unknown": {"deep": [1, {"x": 0}]}, "mine": 1}, {"other": 0})
    changed.spec["mine"] = 0
    del changed.status["other"]
    assert changed.patches() == ({"spec": {"mine": 0}}, {"status": {"other": None}})


def test_draft_adds_and_removes_finalizers_once() -> None:
    changed = draft(finalizers=["first"])
    assert changed.add_finalizer("second")
    assert not changed.add_finalizer("second")
    assert changed.metadata["finalizers"] == ["first", "second"]
    assert changed.remove_finalizer("first")
    assert not changed.remove_finalizer("first")
    assert changed.patches()[0] == {"metadata": {"finalizers": ["second"]}}


def test_draft_owner_references_are_matched_by_uid_in_place() -> None:
    first = {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"}
    changed = draft(ownerReferences=[first, {**first, "uid": "2", "name": "old"}])
    changed.set_owner(OwnerReference(api_version="v1", kind="A", name="new", uid="2", controller=True))
    changed.set_owner(OwnerReference(api_version="v1", kind="B", name="b", uid="3"))
    assert [(owner["uid"], owner["name"]) for owner in changed.metadata["ownerReferences"]] == [
        ("1", "a"),
        ("2", "new"),
        ("3", "b"),
    ]
    assert changed.metadata["ownerReferences"][1]["controller"] is True
    assert "controller" not in changed.metadata["ownerReferences"][2]
    assert changed.remove_owner("1")
    assert [owner["uid"] for owner in changed.metadata["ownerReferences"]] == ["2", "3"]


def test_draft_sets_and_removes_labels_and_annotations() -> None:
    changed = draft(labels={"keep": "1", "drop": "2"})
    changed.set_label("new", "3")
    changed.set_label("drop", None)
    changed.set_annotation("note", "")
    assert changed.patches()[0] == {"metadata": {"labels": {"new": "3", "drop": None}, "annotations": {"note": ""}}}


def test_draft_exposes_key_resource_version_and_deletion() -> None:
    assert draft().key == Key("ns", "n")
    assert draft().resource_version == "7"
    assert not draft().deleting
    assert draft(deletionTimestamp="2026-01-01T00:00:00Z").deleting


class CountingClient:
    """The engine, and how often each of its parts was written."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.patched: list[str] = []

    async def patch(self, target: Target, namespace: str, name: str, patch: Any, **options: Any) -> bytes:
        value = await self._client.patch(target, namespace, name, patch, **options)
        self.patched.append(options.get("subresource") or "whole")
        return value


@pytest.fixture
def counting(client: Client) -> CountingClient:
    return CountingClient(client)


async def node(client: Client) -> Draft:
    obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"}}
    return Draft(NODES.target, await client.create(NODES.target, "", obj))


async def test_save_writes_object_and_status_once_and_returns_stored_object(
    client: Client, counting: CountingClient
) -> None:
    changed = await node(client)
    changed.set_label("colour", "red")
    changed.spec["unschedulable"] = True
    changed.status["phase"] = "Running"
    value = await save(counting, changed, SAVE)  # type: ignore[arg-type]
    assert counting.patched == ["whole", "status"]
    found = msgspec.json.decode(await client.get(NODES.target, "", "n"))
    assert msgspec.json.decode(value) == found
    assert found["metadata"]["labels"]["colour"] == "red"
    assert (found["spec"]["unschedulable"], found["status"]["phase"]) == (True, "Running")
    assert found["spec"]["podCIDR"] == "10.0.0.0/24"


async def test_saving_unchanged_draft_sends_no_request(client: Client, counting: CountingClient) -> None:
    unchanged = await node(client)
    assert await save(counting, unchanged, SAVE) == unchanged.value  # type: ignore[arg-type]
    assert counting.patched == []


async def test_status_change_is_one_write_and_stale_draft_conflicts(client: Client, counting: CountingClient) -> None:
    first = await node(client)
    second = Draft(NODES.target, first.value)
    first.status["phase"] = "Running"
    await save(counting, first, SAVE)  # type: ignore[arg-type]
    assert counting.patched == ["status"]
    for change in ("spec", "status"):
        late = Draft(NODES.target, second.value)
        late.obj[change] = {"phase": "Pending"} if change == "status" else {"unschedulable": True}
        with pytest.raises(StatusError, match="the object has been modified"):
            await save(counting, late, SAVE)  # type: ignore[arg-type]
    assert counting.patched == ["status"]


async def test_removing_last_finalizer_skips_status_write(client: Client, counting: CountingClient) -> None:
    obj = config_map("held", finalizers=["example.com/ours"])
    await client.create(CONFIG_MAP.target, "default", obj)
    ending = Draft(CONFIG_MAP.target, await client.delete(CONFIG_MAP.target, "default", "held"))
    assert ending.deleting
    ending.remove_finalizer("example.com/ours")
    ending.status["phase"] = "Gone"
    await save(counting, ending, SAVE)  # type: ignore[arg-type]
    assert counting.patched == ["whole"]
    with pytest.raises(StatusError, match="not found"):
        await client.get(CONFIG_MAP.target, "default", "held")
