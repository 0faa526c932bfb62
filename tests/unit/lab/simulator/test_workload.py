"""The model of a workload cluster's API, beside the real embedded one wherever both must agree."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.kube.client import Client, Target
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key, Kind, Object
from remuda.lab.simulator import loop as virtual
from remuda.lab.simulator.workload import ModelWorkload
from remuda.runtime.caches import Caches

NODES, PODS = Target("v1", "nodes"), Target("v1", "pods")
NODE = Kind("v1", "Node", "nodes", Object, namespaced=False)


def node(name: str, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **more},
        "spec": {"providerID": f"x:///{name}"},
    }


def pod(name: str, on: str) -> dict[str, Any]:
    spec = {"nodeName": on, "containers": [{"name": "one", "image": "one"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def read(value: bytes) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(value)
    return found


def names(values: Any) -> list[str]:
    return [read(value)["metadata"]["name"] for value in values]


@pytest.fixture(params=["model", "real"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    if request.param == "model":
        yield ModelWorkload()
        return
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0, volatile=True))
    yield server.client()
    await server.stop()


async def refusal(attempt: Any) -> tuple[int, str]:
    with pytest.raises(StatusError) as raised:
        await attempt
    return raised.value.code, raised.value.reason


async def test_created_object_is_read_back_unchanged(client: Client) -> None:
    made = read(await client.create(NODES, "", node("n1")))
    found = read(await client.get(NODES, "", "n1"))
    assert found == made
    assert (found["apiVersion"], found["kind"]) == ("v1", "Node")
    assert found["metadata"]["uid"]
    assert found["metadata"]["creationTimestamp"]


async def test_missing_object_returns_not_found(client: Client) -> None:
    assert await refusal(client.get(NODES, "", "n1")) == (404, "NotFound")
    assert await refusal(client.delete(NODES, "", "n1")) == (404, "NotFound")
    assert await refusal(client.patch(NODES, "", "n1", {})) == (404, "NotFound")
    assert (await client.list(Target("storage.k8s.io/v1", "volumeattachments"))).items == []


async def test_duplicate_create_returns_already_exists(client: Client) -> None:
    await client.create(NODES, "", node("n1"))
    assert await refusal(client.create(NODES, "", node("n1"))) == (409, "AlreadyExists")


async def test_stale_resource_version_returns_conflict(client: Client) -> None:
    made = read(await client.create(NODES, "", node("n1")))
    version = made["metadata"]["resourceVersion"]
    label = {"metadata": {"labels": {"a": "b"}, "resourceVersion": version}}
    changed = read(await client.patch(NODES, "", "n1", label))
    assert int(changed["metadata"]["resourceVersion"]) > int(version)
    again = {"metadata": {"labels": {"a": "c"}, "resourceVersion": version}}
    assert await refusal(client.patch(NODES, "", "n1", again)) == (409, "Conflict")
    assert await refusal(client.update(NODES, "", "n1", made)) == (409, "Conflict")
    assert await refusal(client.delete(NODES, "", "n1", resource_version=version)) == (409, "Conflict")


async def test_empty_patch_does_not_change_resource_version(client: Client) -> None:
    made = await client.create(NODES, "", node("n1"))
    assert await client.patch(NODES, "", "n1", {"metadata": {"labels": None}}) == made


@pytest.mark.parametrize("kind", ["merge", "strategic", "json"])
async def test_all_patch_types_are_applied(client: Client, kind: Any) -> None:
    await client.create(NODES, "", node("n1"))
    patch: Any = {"spec": {"unschedulable": True}}
    if kind == "json":
        patch = [{"op": "add", "path": "/spec/unschedulable", "value": True}]
    assert read(await client.patch(NODES, "", "n1", patch, kind=kind))["spec"]["unschedulable"] is True


async def test_list_is_sorted_and_filtered_by_selectors(client: Client) -> None:
    for name, on in (("c", "n1"), ("a", "n2"), ("b", "n1")):
        await client.create(PODS, "default", pod(name, on))
    assert names((await client.list(PODS)).items) == ["a", "b", "c"]
    assert names((await client.list(PODS, field_selector="spec.nodeName=n1")).items) == ["b", "c"]
    assert names((await client.list(PODS, label_selector="app in (a, c)")).items) == ["a", "c"]
    assert (await client.list(PODS, "elsewhere")).items == []


async def test_watch_streams_changes_since_list_revision(client: Client) -> None:
    listing = await client.list(NODES)
    await client.create(NODES, "", node("n1"))
    await client.patch(NODES, "", "n1", {"metadata": {"labels": {"a": "b"}}})
    watch = client.watch(NODES, resource_version=listing.resource_version)
    async with aclosing(watch):
        told = [await anext(watch) for _ in range(2)]
        await client.delete(NODES, "", "n1")
        told.append(await anext(watch))
    assert [change.type for change in told] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(read(change.value)["metadata"]["resourceVersion"]) for change in told]
    assert versions == sorted(set(versions))


async def test_eviction_deletes_the_pod(client: Client) -> None:
    await client.create(PODS, "default", pod("a", ""))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "default"}}
    await client.create(PODS, "default", body, name="a", subresource="eviction")
    assert await refusal(client.get(PODS, "default", "a")) == (404, "NotFound")


async def test_delete_collection_honours_label_selector(client: Client) -> None:
    for name in "abc":
        await client.create(PODS, "default", pod(name, "") | {"spec": {**pod(name, "")["spec"], "nodeName": None}})
    await client.delete_collection(PODS, "default", label_selector="app!=b")
    assert names((await client.list(PODS)).items) == ["b"]


async def test_watch_without_revision_starts_with_existing_objects() -> None:
    client = ModelWorkload()
    await client.create(NODES, "", node("n2"))
    await client.create(NODES, "", node("n1"))
    watch = client.watch(NODES)
    async with aclosing(watch):
        assert names([(await anext(watch)).value, (await anext(watch)).value]) == ["n1", "n2"]


async def test_watch_of_compacted_revision_returns_expired() -> None:
    client = ModelWorkload()
    listing = await client.list(NODES)
    for number in range(100):
        await client.create(NODES, "", node(f"n{number}"))
    watch = client.watch(NODES, resource_version=listing.resource_version)
    assert await refusal(anext(watch)) == (410, "Expired")


def test_watch_ends_after_timeout_seconds() -> None:
    async def main() -> tuple[list[str], float]:
        client = ModelWorkload()
        loop = asyncio.get_running_loop()
        watch = client.watch(NODES, resource_version="1", timeout_seconds=30)
        loop.call_later(10, lambda: asyncio.ensure_future(client.create(NODES, "", node("n1"))))
        return [change.type async for change in watch], loop.time()

    assert virtual.run(main()) == (["ADDED"], 30.0)


async def test_disconnected_workload_returns_503_and_ends_watches() -> None:
    client = ModelWorkload()
    watch = client.watch(NODES, resource_version="1")
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    client.cut = True
    assert (await refusal(waiting))[0] == 503
    for attempt in (client.list(NODES), client.raw_get("/"), client.create(NODES, "", node("n1"))):
        assert (await refusal(attempt))[0] == 503
    client.cut = False
    assert (await client.list(NODES)).items == []


async def test_workload_without_quorum_serves_reads_and_rejects_writes() -> None:
    client = ModelWorkload()
    await client.create(NODES, "", node("n1"))
    why = "no leader"
    client.frozen = lambda: why
    assert names((await client.list(NODES)).items) == ["n1"]
    for attempt in (
        client.create(NODES, "", node("n2")),
        client.patch(NODES, "", "n1", {}),
        client.delete(NODES, "", "n1"),
    ):
        assert (await refusal(attempt))[0] == 503
    why = ""
    await client.delete(NODES, "", "n1")


async def test_model_workload_serves_version_and_paths() -> None:
    client = ModelWorkload()
    assert b"simulated" in await client.raw_get("/version")
    assert b"paths" in await client.raw_get("/")


async def test_informer_cache_follows_model_workload() -> None:
    client = ModelWorkload()
    await client.create(NODES, "", node("n1"))
    caches = Caches(client)
    informer = caches.of(NODE)
    changed: asyncio.Queue[str] = asyncio.Queue()
    informer.listen(lambda before, after, initial: changed.put_nowait((after or before or Object()).metadata.name))
    await caches.start()
    assert [found.key for found in informer.all()] == [Key("", "n1")]
    await client.create(NODES, "", node("n2"))
    await client.delete(NODES, "", "n1")
    assert [await changed.get() for _ in range(3)] == ["n1", "n2", "n1"]
    assert [found.key for found in informer.all()] == [Key("", "n2")]
    await caches.close()


async def test_model_workload_uses_less_than_8_kib_memory() -> None:
    tracemalloc.start()
    workloads = [ModelWorkload() for _ in range(200)]
    for workload in workloads:
        for number in range(3):
            await workload.create(NODES, "", node(f"n{number}"))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / len(workloads) < 8192


_acts = st.lists(
    st.tuples(
        st.sampled_from(["create", "label", "stale", "cordon", "delete", "get"]),
        st.sampled_from("ab"),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=20,
)


async def _act(client: Client, act: str, name: str, number: int) -> Any:
    if act == "create":
        await client.create(NODES, "", node(name))
    elif act == "label":
        await client.patch(NODES, "", name, {"metadata": {"labels": {"n": str(number) if number else None}}})
    elif act == "stale":
        await client.patch(NODES, "", name, {"metadata": {"labels": {"x": "y"}, "resourceVersion": "1"}})
    elif act == "cordon":
        await client.patch(NODES, "", name, {"spec": {"unschedulable": True}}, kind="strategic")
    elif act == "delete":
        await client.delete(NODES, "", name)
    found = read(await client.get(NODES, "", name))
    return found["metadata"].get("labels") or {}, found["spec"].get("unschedulable")


async def _tried(client: Client, act: str, name: str, number: int) -> Any:
    try:
        return await _act(client, act, name, number)
    except StatusError as error:
        return error.code, error.reason


def test_model_workload_behaves_like_real_api_server(tmp_path: Path) -> None:
    async def main() -> None:
        server = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0, volatile=True))
        real = server.client()

        async def compare(acts: list[tuple[str, str, int]]) -> None:
            model = ModelWorkload()
            await real.delete_collection(NODES)
            for act in acts:
                assert await _tried(model, *act) == await _tried(real, *act), act
            assert names((await model.list(NODES)).items) == names((await real.list(NODES)).items)

        runner = asyncio.get_running_loop()

        @given(_acts)
        @settings(max_examples=50)
        def check(acts: list[tuple[str, str, int]]) -> None:
            asyncio.run_coroutine_threadsafe(compare(acts), runner).result(30)

        await asyncio.to_thread(check)
        await server.stop()

    asyncio.run(main())
