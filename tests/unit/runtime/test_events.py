"""Events on the engine, as `kubectl describe` would find them, and what happens when nobody takes them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from remuda.apiserver.server import ApiServer
from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.kube.objects import ObjectMeta
from remuda.runtime.events import EVENTS, EventObject, Events, reference
from tests.unit.runtime.things import ConfigMap, create, virtually

Json = dict[str, Any]

ABOUT = EventObject("v1", "ConfigMap", "default", "a", "u-1")


async def written(client: Client, field_selector: str = "") -> list[Json]:
    listing = await client.list(EVENTS, "", field_selector=field_selector)
    return [msgspec.json.decode(item) for item in listing.items]


def counts(events: list[Json]) -> dict[str, int]:
    return {event["reason"]: event["count"] for event in events}


async def test_event_refers_to_its_object(client: Client) -> None:
    thing = await create(client, "a")
    events = Events(client, "tester")
    events.start()
    events.warning(thing, "Broken", "it is broken")
    await events.close()
    (found,) = await written(
        client, "involvedObject.name=a,involvedObject.kind=ConfigMap,involvedObject.namespace=default"
    )
    assert found["involvedObject"]["uid"] == thing.metadata.uid
    assert found["involvedObject"]["apiVersion"] == "v1"
    assert (found["type"], found["reason"], found["message"], found["count"]) == (
        "Warning",
        "Broken",
        "it is broken",
        1,
    )
    assert found["source"]["component"] == found["reportingComponent"] == "tester"
    assert found["firstTimestamp"] == found["lastTimestamp"]
    assert found["metadata"]["name"].startswith("a.")


async def test_event_of_cluster_scoped_object_is_in_default_namespace(client: Client) -> None:
    events = Events(client, "tester")
    events.start()
    events.normal(EventObject("v1", "Node", "", "n"), "Seen", "here it is")
    await events.close()
    (found,) = await written(client)
    assert (found["metadata"]["namespace"], found["type"]) == ("default", "Normal")


@virtually
async def test_repeated_event_increments_count(server: ApiServer) -> None:
    client = server.client()
    events = Events(client, "tester")
    events.start()
    for _ in range(3):
        for _ in range(4):
            events.normal(ABOUT, "Pulling", "an image")
        events.normal(ABOUT, "Pulled", "an image")
        await asyncio.sleep(60)
    found = await written(client)
    assert counts(found) == {"Pulling": 12, "Pulled": 3}
    assert found[0]["firstTimestamp"] < found[0]["lastTimestamp"]
    await events.close()


@virtually
async def test_repeated_event_is_recreated_after_deletion(server: ApiServer) -> None:
    client = server.client()
    events = Events(client, "tester")
    events.start()
    events.normal(ABOUT, "Tick", "tock")
    await asyncio.sleep(1)
    (first,) = await written(client)
    await client.delete(EVENTS, "default", first["metadata"]["name"])
    events.normal(ABOUT, "Tick", "tock")
    await asyncio.sleep(1)
    (second,) = await written(client)
    assert second["count"] == 2
    assert second["metadata"]["name"] != first["metadata"]["name"]
    await events.close()


@virtually
async def test_events_are_rate_limited_per_object(server: ApiServer) -> None:
    client = server.client()
    events = Events(client, "tester")
    events.start()
    for number in range(100):
        events.normal(ABOUT, f"Number{number}", "again")
    events.normal(EventObject("v1", "ConfigMap", "default", "b"), "Quiet", "b speaks once")
    await asyncio.sleep(1)
    assert len(await written(client)) == 26
    assert events.dropped == 75
    await asyncio.sleep(600)
    for number in range(100, 110):
        events.normal(ABOUT, f"Number{number}", "again")
    await asyncio.sleep(1)
    assert len(await written(client)) == 28, "one more every five minutes"
    await events.close()


class Refusing:
    """A server with moods."""

    def __init__(self, *moods: Exception | None) -> None:
        self.moods = list(moods)
        self.asked = 0
        self.taken: list[Json] = []

    async def create(self, target: Any, namespace: str, obj: Json, **options: Any) -> bytes:
        self.asked += 1
        mood = self.moods.pop(0) if self.moods else None
        if mood is not None:
            raise mood
        self.taken.append(obj)
        return b"{}"


def refused(*moods: Exception | None) -> tuple[Refusing, Events]:
    server = Refusing(*moods)
    return server, Events(server, "tester")  # type: ignore[arg-type]


@virtually
async def test_event_write_is_retried_after_server_errors() -> None:
    server, events = refused(OSError("away"), StatusError(503, "ServiceUnavailable", "later"))
    events.start()
    events.normal(ABOUT, "Said", "something")
    await asyncio.sleep(0)
    events.normal(ABOUT, "Said", "something")
    await asyncio.sleep(60)
    assert [event["count"] for event in server.taken] == [2]
    assert server.asked == 3
    await events.close()


@virtually
async def test_event_is_dropped_after_five_failed_writes() -> None:
    server, events = refused(*[OSError("away")] * 5)
    events.start()
    events.normal(ABOUT, "First", "lost")
    await asyncio.sleep(300)
    events.normal(ABOUT, "Second", "written")
    await asyncio.sleep(1)
    assert [event["reason"] for event in server.taken] == ["Second"]
    assert (server.asked, events.dropped) == (6, 1)
    await events.close()


@virtually
async def test_forbidden_event_is_not_retried() -> None:
    server, events = refused(StatusError(403, "Forbidden", "the namespace is going"))
    events.start()
    events.normal(ABOUT, "Said", "in vain")
    await asyncio.sleep(60)
    assert (server.asked, events.dropped) == (1, 1)
    await events.close()


@virtually
async def test_events_beyond_queue_limit_are_dropped() -> None:
    server, events = refused()
    for number in range(1200):
        events.normal(EventObject("v1", "ConfigMap", "default", f"a{number}"), "Said", "something")
    assert events.dropped == 200
    events.start()
    await asyncio.sleep(1)
    assert len(server.taken) == 1000
    await events.close()


@virtually
async def test_closing_flushes_pending_events() -> None:
    server, events = refused()
    events.start()
    for number in range(20):
        events.normal(ABOUT, f"Number{number}", "at the last moment")
    await events.close()
    assert len(server.taken) == 20


@virtually
async def test_closing_does_not_wait_for_hanging_server() -> None:
    server, events = refused()

    async def hangs(*args: Any, **options: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    server.create = hangs  # type: ignore[method-assign]
    events.start()
    events.normal(ABOUT, "Said", "in vain")
    await events.close()
    assert asyncio.get_running_loop().time() < 5


def test_long_event_messages_are_truncated() -> None:
    async def say() -> None:
        server, events = refused()
        events.start()
        events.normal(ABOUT, "Long", "x" * 5000)
        await events.close()
        assert len(server.taken[0]["message"]) == 1024
        assert server.taken[0]["message"].endswith("x...")

    virtually(say)(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a", "n" * 253])
def test_event_reference_identifies_the_object(name: str) -> None:
    metadata = ObjectMeta(namespace="ns", name=name, uid="u")
    assert reference(ConfigMap(api_version="v1", kind="ConfigMap", metadata=metadata)) == EventObject(
        "v1", "ConfigMap", "ns", name, "u"
    )
    assert reference(ABOUT) is ABOUT
