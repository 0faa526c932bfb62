"""What every `Client` does alike, whatever is behind it: in process, over HTTP on our server, on the real one.

A test module makes a subclass and gives it the fixtures `client`, `space` (a namespace of the test's own) and `horses`
(a custom resource with status and scale, made by `define_horses`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from remuda.kube.client import Change, Client, Target, list_all
from remuda.kube.errors import StatusError
from tests.lab.limits import LIMIT_SECONDS

Json = dict[str, Any]

CONFIGMAPS, PODS, NAMESPACES = Target("v1", "configmaps"), Target("v1", "pods"), Target("v1", "namespaces")
ACCOUNTS, EVENTS = Target("v1", "serviceaccounts"), Target("v1", "events")
DEFINITIONS = Target("apiextensions.k8s.io/v1", "customresourcedefinitions")


def loads(value: bytes) -> Json:
    found: Json = msgspec.json.decode(value)
    return found


def config(name: str, labels: Json | None = None, **data: str) -> Json:
    metadata: Json = {"name": name}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def names(items: Any) -> list[str]:
    return [loads(item)["metadata"]["name"] for item in items]


async def refusal(attempt: Awaitable[object]) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await attempt
    return caught.value


async def take(client: Client, count: int, target: Target, namespace: str, **options: Any) -> list[Change]:
    """The first changes of a watch that are no bookmarks."""
    found = []
    async with asyncio.timeout(LIMIT_SECONDS), aclosing(client.watch(target, namespace, **options)) as watch:
        async for change in watch:
            if change.type != "BOOKMARK":
                found.append(change)
            if len(found) == count:
                break
    return found


async def define_horses(client: Client, group: str) -> Target:
    """Established, as its watch shows."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties = {"legs": {"type": "integer", "minimum": 3}, "replicas": {"type": "integer"}}
    spec = {"type": "object", "properties": {**properties, "stable": {"type": "string"}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": free}}},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
    }
    definition = {
        "metadata": {"name": f"horses.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "horses", "kind": "Horse"},
            "versions": [version],
        },
    }
    await client.create(DEFINITIONS, "", definition)
    selector = f"metadata.name=horses.{group}"
    async with asyncio.timeout(LIMIT_SECONDS):
        async with aclosing(client.watch(DEFINITIONS, field_selector=selector)) as watch:
            async for change in watch:
                conditions = loads(change.value).get("status", {}).get("conditions") or []
                if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
                    break
    return Target(f"{group}/v1", "horses")


class ClientSuite:
    # -- reading -------------------------------------------------------------------------------------------------

    async def test_objects_are_whole_wherever_they_come_from(self, client: Client, space: str, horses: Target) -> None:
        horse = {"apiVersion": horses.api_version, "kind": "Horse", "metadata": {"name": "h"}, "spec": {"legs": 4}}
        for target, obj in ((CONFIGMAPS, config("h", a="b")), (horses, horse)):
            listed = await client.list(target, space)
            made = loads(await client.create(target, space, obj))
            read = loads(await client.get(target, space, "h"))
            (seen,) = await take(client, 1, target, space, resource_version=listed.resource_version)
            selector = "metadata.name=h"
            (item,) = (await client.list(target, space, field_selector=selector)).items
            assert made == read == loads(seen.value) == loads(item)
            assert (read["apiVersion"], read["kind"]) == (target.api_version, obj["kind"])
            assert type(item) is type(seen.value) is bytes

    async def test_selections(self, client: Client, space: str) -> None:
        for name, colour in (("a", "red"), ("b", "blue"), ("c", "red")):
            await client.create(CONFIGMAPS, space, config(name, {"colour": colour}))
        assert names((await client.list(CONFIGMAPS, space, label_selector="colour=red")).items) == ["a", "c"]
        assert names((await client.list(CONFIGMAPS, space, field_selector="metadata.name=b")).items) == ["b"]
        everywhere = await client.list(CONFIGMAPS, label_selector="colour in (blue)")
        assert space in [loads(item)["metadata"]["namespace"] for item in everywhere.items]

    async def test_pages(self, client: Client, space: str) -> None:
        for number in range(7):
            await client.create(CONFIGMAPS, space, config(f"p{number}", {"paged": "yes"}))
        first = await client.list(CONFIGMAPS, space, label_selector="paged=yes", limit=3)
        assert (names(first.items), bool(first.continue_token)) == (["p0", "p1", "p2"], True)
        found = await list_all(client, CONFIGMAPS, space, label_selector="paged=yes", page=3)
        assert names(found.items) == [f"p{number}" for number in range(7)]
        assert not found.continue_token

    async def test_metadata_only_is_at_least_metadata(self, client: Client, space: str) -> None:
        before = await client.list(CONFIGMAPS, space)
        await client.create(CONFIGMAPS, space, config("m", {"only": "meta"}))
        found = await client.list(CONFIGMAPS, space, label_selector="only=meta", metadata_only=True)
        (seen,) = await take(client, 1, CONFIGMAPS, space, resource_version=before.resource_version, metadata_only=True)
        for value in (*found.items, seen.value):
            assert loads(value)["metadata"]["labels"] == {"only": "meta"}
        assert len(found.items) == 1

    async def test_paths(self, client: Client) -> None:
        assert loads(await client.raw_get("/version"))["major"] == "1"
        assert await client.raw_get("/readyz") == b"ok"
        assert loads(await client.raw_get("/api/v1"))["kind"] == "APIResourceList"
        assert (await refusal(client.raw_get("/nowhere"))).code == 404

    # -- watching ------------------------------------------------------------------------------------------------

    async def test_a_watch_follows(self, client: Client, space: str) -> None:
        start = (await client.list(CONFIGMAPS, space, label_selector="w=1")).resource_version
        await client.create(CONFIGMAPS, space, config("w", {"w": "1"}))
        await client.patch(CONFIGMAPS, space, "w", {"data": {"a": "1"}})
        await client.delete(CONFIGMAPS, space, "w")
        seen = await take(client, 3, CONFIGMAPS, space, resource_version=start, label_selector="w=1")
        assert [change.type for change in seen] == ["ADDED", "MODIFIED", "DELETED"]
        revisions = [int(loads(change.value)["metadata"]["resourceVersion"]) for change in seen]
        assert int(start) < revisions[0] < revisions[1] < revisions[2]

    async def test_a_watch_may_begin_with_what_is_there(self, client: Client, space: str) -> None:
        await client.create(CONFIGMAPS, space, config("i", {"i": "1"}))
        seen: list[Change] = []
        options: Json = {"label_selector": "i=1", "send_initial_events": True}
        async with asyncio.timeout(LIMIT_SECONDS), aclosing(client.watch(CONFIGMAPS, space, **options)) as watch:
            async for change in watch:
                seen.append(change)
                if change.type == "BOOKMARK":
                    break
        assert [change.type for change in seen] == ["ADDED", "BOOKMARK"]
        marked = loads(seen[-1].value)
        assert marked["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert (marked["kind"], marked["apiVersion"]) == ("ConfigMap", "v1")

    async def test_a_watch_ends_in_time(self, client: Client, space: str) -> None:
        start = (await client.list(EVENTS, space)).resource_version
        async with asyncio.timeout(LIMIT_SECONDS):
            seen = [c async for c in client.watch(EVENTS, space, resource_version=start, timeout_seconds=1)]
        assert [change.type for change in seen if change.type != "BOOKMARK"] == []

    async def test_watching_what_is_not_there(self, client: Client, space: str) -> None:
        assert (await refusal(take(client, 1, Target("nowhere.io/v1", "things"), space))).code == 404

    # -- writing -------------------------------------------------------------------------------------------------

    async def test_refusals_have_their_names(self, client: Client, space: str, horses: Target) -> None:
        await client.create(CONFIGMAPS, space, config("r"))
        again = await refusal(client.create(CONFIGMAPS, space, config("r")))
        assert (again.code, again.reason) == (409, "AlreadyExists")
        missing = await refusal(client.get(CONFIGMAPS, space, "missing"))
        assert (missing.code, missing.reason, missing.details["name"]) == (404, "NotFound", "missing")
        stale = config("r") | {"metadata": {"name": "r", "resourceVersion": "1"}}
        conflict = await refusal(client.update(CONFIGMAPS, space, "r", stale))
        assert (conflict.code, conflict.reason) == (409, "Conflict")
        horse = {"apiVersion": horses.api_version, "kind": "Horse", "metadata": {"name": "h"}, "spec": {"legs": 2}}
        invalid = await refusal(client.create(horses, space, horse))
        assert (invalid.code, invalid.reason) == (422, "Invalid")
        assert [cause["field"] for cause in invalid.details["causes"]] == ["spec.legs"]

    async def test_a_name_is_needed(self, client: Client, space: str) -> None:
        await client.create(CONFIGMAPS, space, config("kept"))
        assert (await refusal(client.delete(CONFIGMAPS, space, ""))).code >= 400
        await client.get(CONFIGMAPS, space, "kept")

    async def test_updates(self, client: Client, space: str) -> None:
        made = loads(await client.create(CONFIGMAPS, space, config("u", a="1")))
        made["data"] = {"b": "2"}
        changed = loads(await client.update(CONFIGMAPS, space, "u", made))
        assert changed["data"] == {"b": "2"}
        assert (await refusal(client.update(CONFIGMAPS, space, "u", made))).reason == "Conflict"

    async def test_patches_of_every_kind(self, client: Client, space: str) -> None:
        await client.create(CONFIGMAPS, space, config("p", a="1", b="2"))
        await client.patch(CONFIGMAPS, space, "p", {"data": {"a": None}})
        await client.patch(
            CONFIGMAPS, space, "p", [{"op": "add", "path": "/data/c", "value": "3"}], kind="json", dry_run=False
        )
        found = loads(await client.patch(CONFIGMAPS, space, "p", {"data": {"d": "4"}}, kind="strategic"))
        assert found["data"] == {"b": "2", "c": "3", "d": "4"}
        lock = {"metadata": {"resourceVersion": "1"}, "data": {"e": "5"}}
        assert (await refusal(client.patch(CONFIGMAPS, space, "p", lock))).reason == "Conflict"

    async def test_apply(self, client: Client, space: str) -> None:
        made = loads(await client.patch(CONFIGMAPS, space, "s", config("s", a="1"), kind="apply"))
        (entry,) = made["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"]) == ("remuda", "Apply")
        others = config("s", a="2")
        clash = await refusal(client.patch(CONFIGMAPS, space, "s", others, kind="apply", field_manager="other"))
        assert (clash.reason, clash.details["causes"][0]["reason"]) == ("Conflict", "FieldManagerConflict")
        forced = await client.patch(CONFIGMAPS, space, "s", others, kind="apply", field_manager="other", force=True)
        assert loads(forced)["data"] == {"a": "2"}

    async def test_dry_runs_leave_nothing(self, client: Client, space: str) -> None:
        assert loads(await client.create(CONFIGMAPS, space, config("d"), dry_run=True))["metadata"]["uid"]
        assert (await refusal(client.get(CONFIGMAPS, space, "d"))).code == 404
        await client.create(CONFIGMAPS, space, config("d"))
        await client.patch(CONFIGMAPS, space, "d", {"data": {"a": "1"}}, dry_run=True)
        await client.delete(CONFIGMAPS, space, "d", dry_run=True)
        assert "data" not in loads(await client.get(CONFIGMAPS, space, "d"))

    async def test_who_wrote_is_noted(self, client: Client, space: str) -> None:
        await client.create(CONFIGMAPS, space, config("f", a="1"), field_manager="first")
        found = loads(await client.patch(CONFIGMAPS, space, "f", {"data": {"b": "2"}}))
        assert sorted(one["manager"] for one in found["metadata"]["managedFields"]) == ["first", "remuda"]

    async def test_subresources(self, client: Client, space: str, horses: Target) -> None:
        horse = {"apiVersion": horses.api_version, "kind": "Horse", "metadata": {"name": "s"}, "spec": {"replicas": 1}}
        await client.create(horses, space, horse)
        both = {"spec": {"replicas": 9}, "status": {"replicas": 1}}
        found = loads(await client.patch(horses, space, "s", both, subresource="status"))
        assert (found["spec"], found["status"]) == ({"replicas": 1}, {"replicas": 1})
        await client.patch(horses, space, "s", {"spec": {"replicas": 3}}, subresource="scale")
        scale = loads(await client.get(horses, space, "s", subresource="scale"))
        assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 3)

    async def test_subresources_that_are_created(self, client: Client, space: str) -> None:
        await client.create(ACCOUNTS, space, {"metadata": {"name": "robot"}})
        ask = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        made = loads(await client.create(ACCOUNTS, space, ask, name="robot", subresource="token"))
        assert made["status"]["token"].count(".") == 2

    async def test_deletes_with_conditions(self, client: Client, space: str) -> None:
        held = config("x")
        held["metadata"]["finalizers"] = ["test.io/hold"]
        made = loads(await client.create(CONFIGMAPS, space, held))
        wrong = await refusal(client.delete(CONFIGMAPS, space, "x", uid="another"))
        assert (wrong.code, wrong.reason) == (409, "Conflict")
        wrong = await refusal(client.delete(CONFIGMAPS, space, "x", resource_version="1"))
        assert wrong.reason == "Conflict"
        uid = made["metadata"]["uid"]
        going = loads(await client.delete(CONFIGMAPS, space, "x", uid=uid, propagation="Background"))
        assert going["metadata"]["deletionTimestamp"]
        await client.patch(CONFIGMAPS, space, "x", {"metadata": {"finalizers": None}})
        assert (await refusal(client.get(CONFIGMAPS, space, "x"))).code == 404

    async def test_collections(self, client: Client, space: str) -> None:
        for name, keep in (("a", "no"), ("b", "yes"), ("c", "no")):
            await client.create(CONFIGMAPS, space, config(f"k{name}", {"keep": keep}))
        await client.delete_collection(CONFIGMAPS, space, label_selector="keep=no")
        assert names((await client.list(CONFIGMAPS, space, label_selector="keep")).items) == ["kb"]
