"""Lines that are cut or fall silent, ends that freeze, die and come back: noticed in time, and carried on from."""

from __future__ import annotations

import asyncio

import pytest

from tests.lab.tunnel_cutter import Line
from tests.lab.tunnel_ends import EVERYTHING, KINDS, QUICK, End, OurClient, TunnelEnds
from tests.lab.tunnel_services import WAIT, Services, answers, connected, ended, greeted


async def test_tunnel_reconnects_after_connection_cut(pair: str, ends: TunnelEnds, services: Services) -> None:
    server_kind, client_kind = pair.split("-")
    server = await ends.server(server_kind)
    async with Line(server.address).laid() as line:
        await ends.client(client_kind, f"wss://{line.address}/v3/connect")
        await server.has("corral")
        way = await server.forward(services.echo)
        for _ in range(3):
            await answers(way)
            async with connected(way) as stream:
                stream[1].write(b"hello")
                await asyncio.wait_for(stream[0].readexactly(5), WAIT)
                line.cut()
                assert await ended(stream) == b""
        await answers(way)
        assert line.accepted >= 4


@pytest.mark.parametrize("kind", KINDS)
async def test_server_detects_silent_connection(kind: str, ends: TunnelEnds, services: Services) -> None:
    server = await ends.server("ours", **QUICK)
    async with Line(server.address).laid() as line:
        await ends.client(kind, f"wss://{line.address}/v3/connect")
        await server.has("corral")
        way = await server.forward(services.echo)
        async with greeted(way) as stream:
            line.closed = True
            line.silence()
            assert await ended(stream) == b""
        await server.has()
        assert "received nothing" in (await server.ends())["corral:roan"]


@pytest.mark.parametrize("kind", KINDS)
async def test_client_detects_silent_connection(kind: str, ends: TunnelEnds, services: Services) -> None:
    server = await ends.server(kind)
    async with Line(server.address).laid() as line:
        client = await ends.client("ours", f"wss://{line.address}/v3/connect", **QUICK)
        await server.has("corral")
        way = await server.forward(services.echo)
        await answers(way)
        line.silence()
        async with asyncio.timeout(WAIT):
            while line.accepted < 2:
                await asyncio.sleep(0.05)
        await client.has("server")
        assert isinstance(client, OurClient)
        assert "received nothing" in client.status["last_disconnect_reason"]
        if kind == "ours":  # upstream's goes on using the session that it knew first
            await answers(way)


@pytest.mark.parametrize("kind", KINDS)
async def test_server_uses_other_client_while_one_is_frozen(kind: str, ends: TunnelEnds, services: Services) -> None:
    server = await ends.server("ours", **QUICK)
    await ends.client(kind, server.url, node="roan")
    await server.has("corral")
    way = await server.forward(services.echo)
    await answers(way)
    frozen = await ends.client(kind, server.url, node="bay")
    await _both_are_there(server)
    frozen.freeze()
    await answers(way)
    async with asyncio.timeout(WAIT):
        while "corral:bay" not in await server.ends():
            await asyncio.sleep(0.05)
    await answers(way)
    frozen.go_on()
    await _both_are_there(server)


async def _both_are_there(server: End) -> None:
    async with asyncio.timeout(WAIT):
        while set(await server.nodes()) != {"corral:roan", "corral:bay"}:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", KINDS)
async def test_client_switches_from_frozen_server_to_another(kind: str, ends: TunnelEnds, services: Services) -> None:
    frozen, other = await ends.server(kind), await ends.server(kind)
    await ends.client("ours", frozen.url, other.url, **QUICK, attempt=1.0)
    await frozen.has("corral")
    frozen.freeze()
    await other.has("corral")
    await answers(await other.forward(services.echo))


async def test_clients_reconnect_after_server_restart(pair: str, ends: TunnelEnds, services: Services) -> None:
    server_kind, client_kind = pair.split("-")
    server = await ends.server(server_kind)
    await ends.client(client_kind, server.url)
    await server.has("corral")
    way = await server.forward(services.echo)
    async with connected(way) as stream:
        stream[1].write(b"hello")
        await asyncio.wait_for(stream[0].readexactly(5), WAIT)
        await server.killed()
    again = await ends.server(server_kind, listen=server.address)
    await again.has("corral")
    await answers(await again.forward(services.echo))
    async with asyncio.timeout(WAIT):
        while services.open:  # the client has closed what belonged to the session that is no more
            await asyncio.sleep(0.05)


async def test_killed_client_ends_streams_and_is_served_after_restart(
    pair: str, ends: TunnelEnds, services: Services
) -> None:
    server_kind, client_kind = pair.split("-")
    server = await ends.server(server_kind)
    client = await ends.client(client_kind, server.url)
    await server.has("corral")
    way = await server.forward(services.echo)
    await answers(way)
    async with connected(way) as stream:
        stream[1].write(b"hello")
        await asyncio.wait_for(stream[0].readexactly(5), WAIT)
        await client.killed()
        assert await ended(stream) == b""
    await server.has()
    await client.start()
    await server.has("corral")
    await answers(way)


async def test_client_refuses_dial_outside_allow_list(pair: str, ends: TunnelEnds, services: Services) -> None:
    server_kind, client_kind = pair.split("-")
    server = await ends.server(server_kind)
    await ends.client(client_kind, server.url, allow=[f"tcp/{services.echo}"])
    await server.has("corral")
    allowed, forbidden = await server.forward(services.echo), await server.forward(services.sink)
    async with connected(allowed) as kept:
        kept[1].write(b"hello")
        await asyncio.wait_for(kept[0].readexactly(5), WAIT)
        async with connected(forbidden) as stream:
            assert await ended(stream) == b""
        if client_kind == "go":  # it drops the whole tunnel for one such wish
            assert await ended(kept) == b""
        else:
            assert "not allowed" in await server.failure()
            kept[1].write(b"still here")
            assert await asyncio.wait_for(kept[0].readexactly(10), WAIT) == b"still here"
    await answers(allowed)


async def test_server_refuses_dial_outside_allow_list(ends: TunnelEnds, services: Services) -> None:
    server = await ends.server("ours", allow=[f"tcp/{services.echo}"])
    client = await ends.client("go", server.url)
    await client.has("server")
    await answers(await client.forward(services.echo))
    async with connected(await client.forward(services.sink)) as stream:
        assert await ended(stream) == b""
    assert "not allowed" in await client.failure()
    await answers(await client.forward(services.echo))
    assert await server.sessions() == ["corral"]


async def test_oversized_address_is_refused_by_dialling_server(ends: TunnelEnds, services: Services) -> None:
    server = await ends.server("ours")
    await ends.client("go", server.url, allow=[EVERYTHING])
    await server.has("corral")
    async with connected(await server.forward("a" * 300 + ":80")) as stream:
        assert await ended(stream) == b""
    assert "longer than" in await server.failure()
    await answers(await server.forward(services.echo))
