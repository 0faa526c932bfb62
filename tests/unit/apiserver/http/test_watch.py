"""Watches on the wire."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from remuda.apiserver.http.watch import _PLAIN
from remuda.apiserver.registry.calls import WatchLine
from tests.lab.limits import LIMIT_SECONDS

from .fakes import Client, Fronted, pod, until

WATCH = "/api/v1/namespaces/ns/pods?watch=1&resourceVersion=5"
ERROR = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":410}'


async def start(client: Client, target: str = WATCH, accept: str = "application/json") -> dict[str, str]:
    client.send(f"GET {target} HTTP/1.1\r\nHost: h\r\nAccept: {accept}\r\n\r\n".encode())
    status, headers = await client.read_head()
    assert status == 200
    return dict(headers)


async def events(client: Client, number: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < number:
        chunk = await client.read_chunk()
        found += [msgspec.json.decode(line) for line in chunk.splitlines()]
    return found


async def test_watch_events_are_sent_as_json_lines() -> None:
    async with Fronted() as server:
        client = await server.client()
        headers = await start(client)
        assert headers["Content-Type"] == "application/json"
        assert headers["Transfer-Encoding"] == "chunked"
        watch = server.registry.watches[0]
        watch.queue.put_nowait([WatchLine("ADDED", pod("a")), WatchLine("MODIFIED", pod("b"))])
        first, second = await events(client, 2)
        assert (first["type"], first["object"]) == ("ADDED", msgspec.json.decode(pod("a")))
        assert second["type"] == "MODIFIED"
        watch.queue.put_nowait([WatchLine("ERROR", ERROR)])
        watch.queue.put_nowait([])
        assert (await events(client, 1))[0] == {"type": "ERROR", "object": msgspec.json.decode(ERROR)}
        assert await client.read_chunk() == b""
        assert watch.closed
        assert (await client.ask("GET", "/version")).status == 200  # the connection lives on


def test_one_event_is_encoded_once_for_all_watchers() -> None:
    shared: dict[object, bytes] = {}
    line = WatchLine("ADDED", pod("a"), shared)
    first = _PLAIN.chunk(line)
    assert _PLAIN.chunk(WatchLine("ADDED", pod("a"), shared)) is first
    assert _PLAIN.chunk(WatchLine("MODIFIED", pod("a"), shared)) is not first


async def test_batch_of_watch_events_arrives_in_order() -> None:
    async with Fronted() as server:
        client = await server.client()
        await start(client)
        server.registry.watches[0].queue.put_nowait([WatchLine("ADDED", pod(str(n))) for n in range(50)])
        assert [e["object"]["metadata"]["name"] for e in await events(client, 50)] == [str(n) for n in range(50)]


async def test_slow_watch_client_applies_backpressure_to_initial_events() -> None:
    encoded: list[bytes] = []

    class Noted(dict[object, bytes]):
        def __setitem__(self, key: object, chunk: bytes) -> None:
            encoded.append(chunk)
            super().__setitem__(key, chunk)

    async with Fronted() as server:
        client = await server.client()
        await start(client)
        value = pod("a", data="x" * 20_000)
        server.registry.watches[0].queue.put_nowait([WatchLine("ADDED", value, Noted()) for _ in range(5_000)])
        await until(lambda: encoded)
        await asyncio.sleep(0.2)  # a server that does not wait for the reader would encode everything meanwhile
        assert 0 < len(encoded) < 2_500
        assert len(await events(client, 5_000)) == 5_000


async def test_watch_is_closed_when_the_client_disconnects() -> None:
    async with Fronted() as server:
        client = await server.client()
        await start(client)
        assert "apiserver_longrunning_requests{" in server.front.metrics.render().decode()
        client.close()
        await until(lambda: server.registry.watches[0].closed)
        assert list(server.front.metrics.watches.values()) == [0]


async def test_watch_is_closed_when_the_client_disconnects_immediately() -> None:
    async with Fronted() as server:
        for _ in range(20):
            client = await server.client()
            client.send(f"GET {WATCH} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            await asyncio.sleep(0)
            client.writer.transport.abort()
        listener = server.front._listener
        await until(lambda: listener._made == 20 and not listener.connections)
        await until(lambda: all(watch.closed for watch in server.registry.watches))


async def test_watch_ends_after_its_timeout() -> None:
    async with Fronted() as server:
        client = await server.client()
        await start(client, f"{WATCH}&timeoutSeconds=1")
        assert await client.read_chunk() == b""
        assert server.registry.watches[0].closed


async def test_server_stop_ends_watches_with_final_chunk() -> None:
    server = Fronted()
    async with server:
        client = await server.client()
        await start(client)
        await server.front.stop(LIMIT_SECONDS)
        assert await client.read_chunk() == b""
        assert await client.is_closed()


async def test_legacy_watch_path_selects_object_by_name() -> None:
    async with Fronted() as server:
        client = await server.client()
        await start(client, "/api/v1/watch/namespaces/ns/pods/a")
        options = server.registry.calls[-1][1]
        assert options.field_selector == "metadata.name=a"
        refused = await server.ask("GET", "/api/v1/watch/namespaces/ns/pods/a?fieldSelector=metadata.name%3Db")
        assert refused.status == 400


async def test_table_watch_sends_column_definitions_once() -> None:
    table = "application/json;as=Table;g=meta.k8s.io;v=v1"
    async with Fronted() as server:
        client = await server.client()
        await start(client, WATCH, table)
        queue = server.registry.watches[0].queue
        queue.put_nowait([WatchLine("ADDED", pod("a")), WatchLine("MODIFIED", pod("b")), WatchLine("ERROR", ERROR)])
        first, second, error = await events(client, 3)
        assert [c["name"] for c in first["object"]["columnDefinitions"]] == ["Name", "Age"]
        assert second["object"]["columnDefinitions"] is None
        assert second["object"]["rows"][0]["cells"][0] == "b"
        assert error["object"]["kind"] == "Status"


async def test_initial_events_end_bookmark_keeps_annotation_in_every_view() -> None:
    value = msgspec.json.encode(
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}},
        }
    )
    async with Fronted() as server:
        for view in ("Table", "PartialObjectMetadata"):
            client = await server.client()
            await start(client, f"{WATCH}&includeObject=None", f"application/json;as={view};g=meta.k8s.io;v=v1")
            server.registry.watches[-1].queue.put_nowait([WatchLine("BOOKMARK", value)])
            shown = (await events(client, 1))[0]["object"]
            partial = shown["rows"][0]["object"] if view == "Table" else shown
            assert partial["kind"] == "PartialObjectMetadata"
            assert partial["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
