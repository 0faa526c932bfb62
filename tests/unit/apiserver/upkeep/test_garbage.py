"""Objects go when the last of their owners is gone, in the way the deletion asked for, whenever the server dies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from remuda.apiserver.storage.types import StoreEvent
from remuda.kube.client import Target
from tests.unit.apiserver.engine import (
    CONFIGMAPS,
    CRDS,
    NODES,
    Engine,
    definition,
    owned,
    owner_reference,
)

HOLD = ["test.io/hold"]


async def make(engine: Engine, name: str, *owners: dict[str, Any], **more: Any) -> dict[str, Any]:
    return await engine.create(CONFIGMAPS, "ns", owned(name, *owners, **more))


def owners_of(engine: Engine, name: str) -> list[str]:
    found = engine.find(CONFIGMAPS, "ns", name)
    assert found is not None
    return [ref["name"] for ref in found["metadata"].get("ownerReferences", ())]


def finalizers_of(engine: Engine, name: str) -> list[str]:
    found = engine.find(CONFIGMAPS, "ns", name)
    return found["metadata"].get("finalizers", []) if found else []


def is_ending(engine: Engine, name: str) -> bool:
    found = engine.find(CONFIGMAPS, "ns", name)
    return found is not None and "deletionTimestamp" in found["metadata"]


# ---- background --------------------------------------------------------------------------------------------------


async def test_dependents_are_deleted_with_their_owner(engine: Engine) -> None:
    owner = await make(engine, "owner")
    await make(engine, "child", owner)
    await make(engine, "stranger")
    await engine.delete(CONFIGMAPS, "ns", "owner")
    await engine.gone(CONFIGMAPS, "ns", "child")
    await engine.settled()
    assert engine.find(CONFIGMAPS, "ns", "stranger")


async def test_chain_of_dependents_is_deleted_with_its_root(engine: Engine) -> None:
    links = [await make(engine, "c0")]
    for i in range(1, 6):
        links.append(await make(engine, f"c{i}", links[-1]))
    await engine.delete(CONFIGMAPS, "ns", "c0", "Background")
    await engine.gone(CONFIGMAPS, "ns", *(f"c{i}" for i in range(6)))


async def test_dependent_is_kept_while_another_owner_remains(engine: Engine) -> None:
    first, second = await make(engine, "first"), await make(engine, "second")
    await make(engine, "child", first, second)
    await engine.delete(CONFIGMAPS, "ns", "first")
    await engine.eventually(lambda: owners_of(engine, "child") == ["second"])
    await engine.delete(CONFIGMAPS, "ns", "second")
    await engine.gone(CONFIGMAPS, "ns", "child")


async def test_dependent_of_nonexistent_owner_is_deleted(engine: Engine) -> None:
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "no-such-uid"}}
    await make(engine, "child", ghost)
    await engine.gone(CONFIGMAPS, "ns", "child")


async def test_dependent_is_deleted_when_owner_is_recreated_with_new_uid(engine: Engine) -> None:
    owner = await make(engine, "owner", finalizers=HOLD)
    await make(engine, "child", owner)
    await engine.delete(CONFIGMAPS, "ns", "owner")
    await engine.release(CONFIGMAPS, "ns", "owner")
    await make(engine, "owner")
    await engine.gone(CONFIGMAPS, "ns", "child")
    await engine.settled()
    assert engine.find(CONFIGMAPS, "ns", "owner")


async def test_terminating_owner_keeps_its_dependents(engine: Engine) -> None:
    owner = await make(engine, "owner", finalizers=HOLD)
    await make(engine, "child", owner)
    await engine.delete(CONFIGMAPS, "ns", "owner", "Background")
    await engine.settled()
    assert not is_ending(engine, "child")
    await engine.release(CONFIGMAPS, "ns", "owner")
    await engine.gone(CONFIGMAPS, "ns", "child")


async def test_owner_reference_added_later_is_honored(engine: Engine) -> None:
    owner = await make(engine, "owner")
    await make(engine, "child")
    await engine.patch(CONFIGMAPS, "ns", "child", {"metadata": {"ownerReferences": [owner_reference(owner)]}})
    await engine.delete(CONFIGMAPS, "ns", "owner")
    await engine.gone(CONFIGMAPS, "ns", "child")


async def test_dependent_without_owner_reference_is_kept(engine: Engine) -> None:
    owner = await make(engine, "owner")
    await make(engine, "child", owner)
    await engine.patch(CONFIGMAPS, "ns", "child", {"metadata": {"ownerReferences": None}})
    await engine.delete(CONFIGMAPS, "ns", "owner")
    await engine.settled()
    assert engine.find(CONFIGMAPS, "ns", "child")


async def test_pending_owner_reference_removal_prevents_collection(engine: Engine) -> None:
    """The collector sees what is committed; who was told of a rescue a moment later keeps the object."""
    owner = await make(engine, "owner")
    await make(engine, "child", owner)
    rescues: list[asyncio.Task[Any]] = []

    def rescue(events: Sequence[StoreEvent]) -> None:
        if any(event.type == "DELETED" and event.entry.name == "owner" for event in events):
            patch = engine.patch(CONFIGMAPS, "ns", "child", {"metadata": {"ownerReferences": None}})
            rescues.append(asyncio.create_task(patch))

    engine.store.subscribe(rescue)
    await engine.delete(CONFIGMAPS, "ns", "owner")
    await rescues[0]
    await engine.settled()
    assert engine.find(CONFIGMAPS, "ns", "child")


async def test_owner_in_another_namespace_is_not_found(engine: Engine) -> None:
    owner = await make(engine, "owner")
    await engine.namespace("elsewhere")
    await engine.create(CONFIGMAPS, "elsewhere", owned("child", owner))
    await engine.gone(CONFIGMAPS, "elsewhere", "child")
    assert engine.find(CONFIGMAPS, "ns", "owner")


async def test_namespaced_dependent_is_deleted_with_cluster_scoped_owner(engine: Engine) -> None:
    node = await engine.create(NODES, "", {"metadata": {"name": "n"}})
    await make(engine, "child", node)
    await engine.settled()
    assert engine.find(CONFIGMAPS, "ns", "child")
    await engine.delete(NODES, "", "n")
    await engine.gone(CONFIGMAPS, "ns", "child")


async def test_cluster_scoped_dependent_is_deleted_with_cluster_scoped_owner(engine: Engine) -> None:
    node = await engine.create(NODES, "", {"metadata": {"name": "n"}})
    await engine.create(NODES, "", owned("child", node))
    await engine.delete(NODES, "", "n")
    await engine.gone(NODES, "", "child")


async def test_cluster_scoped_dependent_of_namespaced_owner_is_kept(engine: Engine) -> None:
    """Its reference cannot say in which namespace to look."""
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "no-such-uid"}}
    await engine.create(NODES, "", owned("child", ghost))
    await engine.settled()
    assert engine.find(NODES, "", "child")


async def test_thousand_dependents_are_deleted_with_their_owner(engine: Engine) -> None:
    owner = await make(engine, "owner")
    await asyncio.gather(*(make(engine, f"c{i}", owner) for i in range(1000)))
    await engine.delete(CONFIGMAPS, "ns", "owner")
    await engine.eventually(lambda: not engine.names(CONFIGMAPS, "ns"))


# ---- kinds that come and go --------------------------------------------------------------------------------------


async def test_dependent_is_kept_until_unknown_owner_kind_is_defined(engine: Engine) -> None:
    ghost = {"apiVersion": "test.io/v1", "kind": "Widget", "metadata": {"name": "ghost", "uid": "no-such-uid"}}
    await make(engine, "child", ghost)
    await engine.settled()
    assert engine.find(CONFIGMAPS, "ns", "child")
    await engine.define(definition())
    await engine.gone(CONFIGMAPS, "ns", "child")


async def test_dependents_are_deleted_with_the_crd_of_their_owner(engine: Engine) -> None:
    widgets = await engine.define(definition())
    widget = await engine.create(widgets, "ns", {"metadata": {"name": "w"}})
    for i in range(40):
        await make(engine, f"c{i}", widget)
    await engine.delete(CRDS, "", "widgets.test.io")
    await engine.eventually(lambda: not engine.names(CONFIGMAPS, "ns"))


async def test_owner_reference_matches_any_served_version(engine: Engine) -> None:
    both = definition()
    both["spec"]["versions"].append({**both["spec"]["versions"][0], "name": "v1beta1", "storage": False})
    await engine.define(both)
    old = Target("test.io/v1beta1", "widgets")
    widget = await engine.create(old, "ns", {"metadata": {"name": "w"}})
    assert widget["apiVersion"] == "test.io/v1beta1"
    await make(engine, "child", widget)
    await engine.settled()
    assert engine.find(CONFIGMAPS, "ns", "child")
    await engine.delete(old, "ns", "w")
    await engine.gone(CONFIGMAPS, "ns", "child")


# ---- foreground --------------------------------------------------------------------------------------------------


async def test_foreground_deletion_waits_for_blocking_dependents(engine: Engine) -> None:
    owner = await make(engine, "owner")
    await make(engine, "child", owner, finalizers=HOLD, blockOwnerDeletion=True)
    await engine.delete(CONFIGMAPS, "ns", "owner", "Foreground")
    await engine.eventually(lambda: is_ending(engine, "child"))
    await engine.settled()
    assert finalizers_of(engine, "owner") == ["foregroundDeletion"]
    await engine.release(CONFIGMAPS, "ns", "child")
    await engine.gone(CONFIGMAPS, "ns", "child", "owner")


async def test_foreground_deletion_does_not_wait_for_nonblocking_dependents(engine: Engine) -> None:
    owner = await make(engine, "owner")
    await make(engine, "child", owner, finalizers=HOLD)
    await engine.delete(CONFIGMAPS, "ns", "owner", "Foreground")
    await engine.gone(CONFIGMAPS, "ns", "owner")
    await engine.eventually(lambda: is_ending(engine, "child"))


async def test_foreground_deletion_continues_when_dependent_stops_blocking(engine: Engine) -> None:
    owner = await make(engine, "owner")
    await make(engine, "child", owner, finalizers=HOLD, blockOwnerDeletion=True)
    await engine.delete(CONFIGMAPS, "ns", "owner", "Foreground")
    await engine.eventually(lambda: is_ending(engine, "child"))
    free = {"metadata": {"ownerReferences": [owner_reference(owner, blockOwnerDeletion=False)]}}
    await engine.patch(CONFIGMAPS, "ns", "child", free)
    await engine.gone(CONFIGMAPS, "ns", "owner")


async def test_foreground_deletion_continues_when_dependent_has_another_owner(engine: Engine) -> None:
    owner, other = await make(engine, "owner"), await make(engine, "other")
    await make(engine, "child", owner, other, blockOwnerDeletion=True)
    await engine.delete(CONFIGMAPS, "ns", "owner", "Foreground")
    await engine.gone(CONFIGMAPS, "ns", "owner")
    await engine.settled()
    assert owners_of(engine, "child") == ["other"]


async def test_foreground_deletion_removes_leaves_first(engine: Engine) -> None:
    top = await make(engine, "top")
    middle = await make(engine, "middle", top, blockOwnerDeletion=True)
    await make(engine, "leaf", middle, finalizers=HOLD, blockOwnerDeletion=True)
    await engine.delete(CONFIGMAPS, "ns", "top", "Foreground")
    await engine.eventually(lambda: is_ending(engine, "leaf"))
    await engine.settled()
    assert finalizers_of(engine, "middle") == ["foregroundDeletion"]
    assert finalizers_of(engine, "top") == ["foregroundDeletion"]
    await engine.release(CONFIGMAPS, "ns", "leaf")
    await engine.gone(CONFIGMAPS, "ns", "leaf", "middle", "top")


async def test_foreground_deletion_without_dependents_completes(engine: Engine) -> None:
    await make(engine, "owner")
    await engine.delete(CONFIGMAPS, "ns", "owner", "Foreground")
    await engine.gone(CONFIGMAPS, "ns", "owner")


async def test_foreground_deletion_keeps_other_finalizers(engine: Engine) -> None:
    owner = await make(engine, "owner", finalizers=HOLD)
    await make(engine, "child", owner, blockOwnerDeletion=True)
    await engine.delete(CONFIGMAPS, "ns", "owner", "Foreground")
    await engine.gone(CONFIGMAPS, "ns", "child")
    await engine.eventually(lambda: finalizers_of(engine, "owner") == HOLD)
    await engine.release(CONFIGMAPS, "ns", "owner")
    await engine.gone(CONFIGMAPS, "ns", "owner")


@pytest.mark.parametrize("size", [2, 3, 5])
async def test_foreground_deletion_breaks_ownership_cycle(engine: Engine, size: int) -> None:
    members = [await make(engine, f"c{i}") for i in range(size)]
    for i, member in enumerate(members):
        reference = owner_reference(members[i - 1], blockOwnerDeletion=True)
        patch = {"metadata": {"ownerReferences": [reference]}}
        await engine.patch(CONFIGMAPS, "ns", member["metadata"]["name"], patch)
    await engine.delete(CONFIGMAPS, "ns", "c0", "Foreground")
    await engine.gone(CONFIGMAPS, "ns", *(f"c{i}" for i in range(size)))


async def test_foreground_deletion_of_self_owned_object_completes(engine: Engine) -> None:
    alone = await make(engine, "alone")
    reference = owner_reference(alone, blockOwnerDeletion=True)
    await engine.patch(CONFIGMAPS, "ns", "alone", {"metadata": {"ownerReferences": [reference]}})
    await engine.settled()
    assert engine.find(CONFIGMAPS, "ns", "alone")
    await engine.delete(CONFIGMAPS, "ns", "alone", "Foreground")
    await engine.gone(CONFIGMAPS, "ns", "alone")


async def test_background_deletion_removes_ownership_cycle(engine: Engine) -> None:
    a = await make(engine, "a")
    b = await make(engine, "b", a)
    await engine.patch(CONFIGMAPS, "ns", "a", {"metadata": {"ownerReferences": [owner_reference(b)]}})
    await engine.delete(CONFIGMAPS, "ns", "a", "Background")
    await engine.gone(CONFIGMAPS, "ns", "a", "b")


# ---- orphan ------------------------------------------------------------------------------------------------------


async def test_orphan_deletion_keeps_dependents_and_removes_owner_reference(engine: Engine) -> None:
    owner, other = await make(engine, "owner"), await make(engine, "other")
    await make(engine, "child", owner)
    await make(engine, "shared", owner, other)
    await engine.delete(CONFIGMAPS, "ns", "owner", "Orphan")
    await engine.gone(CONFIGMAPS, "ns", "owner")
    await engine.settled()
    assert owners_of(engine, "child") == []
    assert owners_of(engine, "shared") == ["other"]


async def test_foreground_delete_overrides_earlier_background_delete(engine: Engine) -> None:
    owner = await make(engine, "owner", finalizers=HOLD)
    await make(engine, "child", owner, blockOwnerDeletion=True)
    await engine.delete(CONFIGMAPS, "ns", "owner", "Background")
    await engine.delete(CONFIGMAPS, "ns", "owner", "Foreground")
    await engine.gone(CONFIGMAPS, "ns", "child")


# ---- restarts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_garbage_collection_resumes_after_restart(idle_engine: Engine, policy: Any) -> None:
    engine = idle_engine
    owner = await make(engine, "owner")
    for i in range(30):
        child = await make(engine, f"c{i}", owner, blockOwnerDeletion=True)
        await make(engine, f"g{i}", child, blockOwnerDeletion=True)
    await engine.delete(CONFIGMAPS, "ns", "owner", policy)
    await engine.restart()
    await engine.eventually(lambda: not engine.names(CONFIGMAPS, "ns"))


async def test_restart_during_orphan_deletion_keeps_all_dependents(idle_engine: Engine) -> None:
    """The objects sort behind their owner, and the index is built in steps: nothing is decided on half of it."""
    engine = idle_engine
    owner = await make(engine, "a-owner")
    count = 1500
    await asyncio.gather(*(make(engine, f"c{i}", owner) for i in range(count)))
    await engine.delete(CONFIGMAPS, "ns", "a-owner", "Orphan")
    await engine.restart()
    await engine.gone(CONFIGMAPS, "ns", "a-owner")
    await engine.settled()
    assert len(engine.names(CONFIGMAPS, "ns")) == count
    assert not any(owners_of(engine, f"c{i}") for i in range(count))


async def test_foreground_deletion_completes_across_restarts(engine: Engine) -> None:
    owner = await make(engine, "owner")
    await asyncio.gather(*(make(engine, f"c{i}", owner, blockOwnerDeletion=True) for i in range(300)))
    await engine.delete(CONFIGMAPS, "ns", "owner", "Foreground")
    await engine.eventually(lambda: len(engine.names(CONFIGMAPS, "ns")) <= 200)
    await engine.restart()
    await engine.eventually(lambda: len(engine.names(CONFIGMAPS, "ns")) <= 100)
    await engine.restart()
    await engine.eventually(lambda: not engine.names(CONFIGMAPS, "ns"))


async def test_owner_changes_during_startup_scan_are_not_overwritten(idle_engine: Engine) -> None:
    owner, other = await make(idle_engine, "owner"), await make(idle_engine, "other")
    await asyncio.gather(*(make(idle_engine, f"c{i}", owner) for i in range(1200)))
    starting = asyncio.create_task(idle_engine.upkeep.start())
    moved = {"metadata": {"ownerReferences": [owner_reference(other)]}}
    await asyncio.gather(*(idle_engine.patch(CONFIGMAPS, "ns", f"c{i}", moved) for i in range(1100, 1200)))
    await starting
    await idle_engine.delete(CONFIGMAPS, "ns", "other")
    await idle_engine.gone(CONFIGMAPS, "ns", *(f"c{i}" for i in range(1100, 1200)))
