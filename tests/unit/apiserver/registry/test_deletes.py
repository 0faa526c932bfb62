from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.client import LocalClient
from remuda.apiserver.registry.registry import Registry
from remuda.kube.errors import StatusError
from tests.unit.apiserver.registry.conftest import WIDGETS, loads, widget


async def make(client: LocalClient, name: str = "w", *finalizers: str) -> dict[str, Any]:
    body = widget(name)
    if finalizers:
        body["metadata"]["finalizers"] = list(finalizers)
    return loads(await client.create(WIDGETS, "ns", body))


async def exists(client: LocalClient, name: str = "w") -> bool:
    return bool((await client.list(WIDGETS, "ns", field_selector=f"metadata.name={name}")).items)


async def test_delete_without_finalizers_removes_object_immediately(client: LocalClient) -> None:
    made = await make(client)
    status = loads(await client.delete(WIDGETS, "ns", "w"))
    assert (status["kind"], status["status"]) == ("Status", "Success")
    assert status["details"] == {"name": "w", "group": "test.io", "kind": "widgets", "uid": made["metadata"]["uid"]}
    assert not await exists(client)


async def test_delete_with_finalizers_waits_for_their_removal(client: LocalClient) -> None:
    await make(client, "w", "test.io/hold")
    held = loads(await client.delete(WIDGETS, "ns", "w"))
    meta = held["metadata"]
    assert meta["deletionTimestamp"]
    assert (meta["deletionGracePeriodSeconds"], meta["generation"]) == (0, 2)
    again = loads(await client.delete(WIDGETS, "ns", "w"))
    assert again == held
    last = loads(await client.patch(WIDGETS, "ns", "w", {"metadata": {"finalizers": None}}))
    assert last["metadata"]["name"] == "w"
    assert not await exists(client)


async def test_deleted_event_carries_the_deletion_revision(client: LocalClient, registry: Registry) -> None:
    await make(client)
    changes = client.watch(WIDGETS, "ns", resource_version=str(registry.store.revision))
    await client.delete(WIDGETS, "ns", "w")
    change = await anext(changes)
    assert change.type == "DELETED"
    assert int(loads(change.value)["metadata"]["resourceVersion"]) == registry.store.revision


@pytest.mark.parametrize(("policy", "finalizer"), [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")])
async def test_propagation_policy_adds_finalizer(client: LocalClient, policy: Any, finalizer: str) -> None:
    await make(client)
    held = loads(await client.delete(WIDGETS, "ns", "w", propagation=policy))
    assert held["metadata"]["finalizers"] == [finalizer]
    assert held["metadata"]["deletionTimestamp"]


async def test_later_propagation_policy_replaces_earlier_finalizer(client: LocalClient) -> None:
    await make(client, "w", "test.io/hold")
    await client.delete(WIDGETS, "ns", "w", propagation="Foreground")
    held = loads(await client.delete(WIDGETS, "ns", "w", propagation="Background"))
    assert held["metadata"]["finalizers"] == ["test.io/hold"]


async def test_delete_preconditions_must_match(client: LocalClient) -> None:
    made = await make(client)
    for wrong in ({"uid": "other"}, {"resource_version": "1"}):
        with pytest.raises(StatusError) as caught:
            await client.delete(WIDGETS, "ns", "w", **wrong)  # type: ignore[arg-type]
        assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    meta = made["metadata"]
    await client.delete(WIDGETS, "ns", "w", uid=meta["uid"], resource_version=meta["resourceVersion"])
    assert not await exists(client)


async def test_dry_run_deletes_nothing(client: LocalClient, registry: Registry) -> None:
    await make(client)
    before = registry.store.revision
    await client.delete(WIDGETS, "ns", "w", dry_run=True)
    assert registry.store.revision == before
    assert await exists(client)


async def test_delete_collection_honors_field_selector(client: LocalClient) -> None:
    for name in ("a", "b", "c"):
        body = widget(name, colour="red" if name == "b" else "blue")
        await client.create(WIDGETS, "ns", body)
    await client.delete_collection(WIDGETS, "ns", field_selector="spec.colour=blue")
    left = [loads(i)["metadata"]["name"] for i in (await client.list(WIDGETS, "ns")).items]
    assert left == ["b"]


async def test_deleting_object_rejects_new_finalizers(client: LocalClient) -> None:
    await make(client, "w", "test.io/hold")
    await client.delete(WIDGETS, "ns", "w")
    with pytest.raises(StatusError) as caught:
        await client.patch(WIDGETS, "ns", "w", {"metadata": {"finalizers": ["test.io/hold", "test.io/more"]}})
    assert caught.value.code == 422
