"""Servers that say what servers normally do not, to our client; and to upstream's, where that is how it behaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.lab.tunnel_ends import KINDS, QUICK, OurClient, TunnelEnds
from tests.lab.tunnel_raw import BINARY, CONNECT, DATA, ERROR, PAUSE, PING, RESUME, RawEnd, RawServer, message
from tests.lab.tunnel_services import WAIT, Services, digest_of, length_header, pieces

MEGABYTE = 1 << 20


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def _server(ends: TunnelEnds) -> AsyncIterator[RawServer]:
    async with RawServer(ends.files["certificate"], ends.files["key"]).serving() as server:
        yield server


@asynccontextmanager
async def _joined(ends: TunnelEnds, kind: str, **seconds: float) -> AsyncIterator[tuple[RawServer, RawEnd]]:
    async with _server(ends) as server:
        await ends.client(kind, server.url, **seconds)
        yield server, await server.session()


def _connect(number: int, address: str, network: str = "tcp") -> bytes:
    return message(CONNECT, number, f"{network}/{address}".encode())


async def _still_works(end: RawEnd, services: Services, number: int = 1000) -> None:
    await end.send(_connect(number, services.echo), message(DATA, number, b"still here"))
    heard = b""
    while heard != b"still here":
        said = await end.hear_of("data")
        assert said.stream == number
        heard += said.payload


async def test_client_sends_its_tunnel_id(kind: str, ends: TunnelEnds) -> None:
    async with _joined(ends, kind) as (_, end):
        assert end.headers["x-tunnel-id"] == "corral"
        assert "sec-websocket-extensions" not in end.headers


async def test_data_sent_with_connect_waits_for_dial(kind: str, ends: TunnelEnds, services: Services) -> None:
    async with _joined(ends, kind) as (_, end):
        pieces = [message(DATA, 6, b"%02d" % number) for number in range(50)]
        await end.send(_connect(6, services.echo), *pieces)
        heard = b""
        while len(heard) < 100:
            heard += (await end.hear_of("data")).payload
        assert heard == b"".join(b"%02d" % number for number in range(50))


async def test_fragmented_message_with_interleaved_pings_is_reassembled(
    kind: str, ends: TunnelEnds, services: Services
) -> None:
    async with _joined(ends, kind) as (_, end):
        content = b"x" * MEGABYTE
        whole = message(DATA, 6, length_header(len(content)) + content)
        await end.send(_connect(6, services.sink))
        frames = []
        for at in range(0, len(whole), 4096):
            frames.append(end.frame(0 if at else BINARY, whole[at : at + 4096], final=at + 4096 >= len(whole)))
            frames.append(end.frame(PING, b"are you there?"))
        await end.send_raw(*frames)
        said = await end.hear_of("data")
        assert len(said.payload) == 32
        assert end.pongs >= 1


async def test_service_eof_is_sent_after_last_byte(kind: str, ends: TunnelEnds, services: Services) -> None:
    async with _joined(ends, kind) as (_, end):
        size = 300_000
        await end.send(_connect(6, services.source), message(DATA, 6, length_header(size)))
        heard = await end.all_until("error", 6)
        assert sum(len(said.payload) for said in heard if said.kind == "data") == size
        assert heard[-1].payload == b"EOF"
        more = [said for said in await end.asked() if said.stream == 6]
        assert kind == "go" or more == [], "an end is said once"
        await _still_works(end, services)


async def test_refused_dial_is_reported_for_its_stream(kind: str, ends: TunnelEnds, services: Services) -> None:
    async with _joined(ends, kind) as (_, end):
        await end.send(_connect(6, services.closed_port))
        said = await end.hear_of("error")
        assert said.stream == 6
        assert b"refused" in said.payload
        await _still_works(end, services)


async def test_forbidden_dial_requests_fail_only_their_stream(ends: TunnelEnds, services: Services) -> None:
    """For which upstream's client drops the tunnel."""
    async with _joined(ends, "ours") as (_, end):
        await end.send(
            _connect(6, "10.0.0.1:80"),
            _connect(8, services.echo, "udp"),
            message(CONNECT, 10, b"no address"),
            message(CONNECT, 12, b""),
            message(CONNECT, 14, b"tcp/\xff\xfe:80"),
            message(CONNECT, 16, b"tcp/" + b"a" * 263),
            _connect(18, "127.0.0.1:99999"),
            _connect(20, "/etc/passwd", "unix"),
        )
        refused = [await end.hear_of("error") for _ in range(8)]
        assert sorted(said.stream for said in refused) == list(range(6, 21, 2))
        await _still_works(end, services)


async def test_repeated_eof_and_late_data_are_harmless(kind: str, ends: TunnelEnds, services: Services) -> None:
    async with _joined(ends, kind) as (_, end):
        await _still_works(end, services, 6)
        await end.send(*[message(ERROR, 6, b"EOF")] * 3)
        await end.asked()
        async with asyncio.timeout(WAIT):
            while services.open:
                await asyncio.sleep(0.02)
        await end.send(*[message(DATA, 6, b"too late")] * 5)
        heard = [said for said in await end.asked() if b"not found" in said.payload]
        assert len(heard) == (1 if kind == "ours" else 5)
        await _still_works(end, services)


async def test_any_integer_is_accepted_as_stream_number(kind: str, ends: TunnelEnds, services: Services) -> None:
    async with _joined(ends, kind) as (_, end):
        for number in (0, -1, 1, (1 << 63) - 1, -(1 << 63)):
            await _still_works(end, services, number)


async def test_client_syncs_its_stream_numbers(ends: TunnelEnds, services: Services) -> None:
    async with _joined(ends, "ours", sync=1.0) as (_, end):
        for number in (6, -3, 1 << 40):
            await _still_works(end, services, number)
        said = await end.hear_of("sync")
        numbers = [int.from_bytes(said.payload[at : at + 8], "little", signed=True) for at in range(0, 24, 8)]
        assert numbers == [-3, 6, 1 << 40]


async def test_paused_stream_sends_nothing_until_resumed(ends: TunnelEnds, services: Services) -> None:
    """Upstream's client goes on as soon as its service has read something, whoever had paused it."""
    async with _joined(ends, "ours") as (_, end):
        await end.send(_connect(6, services.source), message(PAUSE, 6), message(DATA, 6, length_header(MEGABYTE)))
        assert [said for said in await end.for_a_while() if said.kind == "data"] == []
        await end.send(message(RESUME, 6))
        heard = await end.all_until("error", 6)
        assert sum(len(said.payload) for said in heard if said.kind == "data") == MEGABYTE


async def test_slow_service_pauses_server_and_resumes_later(kind: str, ends: TunnelEnds, services: Services) -> None:
    async with _joined(ends, kind) as (_, end):
        size, may_send, pauses = 64 * MEGABYTE, asyncio.Event(), 0

        async def listen() -> bytes:
            nonlocal pauses
            while (said := await end.hear()).kind != "data":
                assert said.kind in ("pause", "resume"), said
                (may_send.clear if said.kind == "pause" else may_send.set)()
                pauses += said.kind == "pause"
            return said.payload

        may_send.set()
        listening = asyncio.create_task(listen())
        await end.send(_connect(6, services.blocked_sink), message(DATA, 6, length_header(size)))
        for piece in pieces(size):
            await end.send(message(DATA, 6, piece))
            await asyncio.sleep(0)
            if not may_send.is_set():
                services.unblocked.set()
                await asyncio.wait_for(may_send.wait(), WAIT)
        assert await asyncio.wait_for(listening, WAIT) == digest_of(size)
        assert pauses


async def test_server_ignoring_pause_loses_only_that_stream(ends: TunnelEnds, services: Services) -> None:
    async with _joined(ends, "ours") as (_, end):
        await end.send(_connect(6, services.blocked_sink))
        failing = asyncio.create_task(end.hear_of("error"))
        sent = 0
        while not failing.done():
            await end.send(message(DATA, 6, b"x" * 65536))
            sent += 65536
            await asyncio.sleep(0)
            assert sent < 512 * MEGABYTE
        assert (await failing).stream == 6
        await _still_works(end, services)


async def test_client_pings_and_disconnects_unresponsive_server(ends: TunnelEnds) -> None:
    async with _joined(ends, "ours", **QUICK) as (server, end):
        end.deaf = True
        await end.gone()
        assert end.pings >= 2
        await server.session()


async def test_text_message_ends_session_and_client_reconnects(kind: str, ends: TunnelEnds, services: Services) -> None:
    async with _joined(ends, kind) as (server, end):
        await end.send_raw(end.frame(1, b"hello"))
        await end.gone()
        await _still_works(await server.session(), services)


async def test_masked_frame_of_a_server_ends_the_session(kind: str, ends: TunnelEnds, services: Services) -> None:
    async with _joined(ends, kind) as (server, end):
        liar = RawEnd(None, None, masks=True)
        await end.send_raw(liar.frame(PING, b""))
        await end.gone()
        await _still_works(await server.session(), services)


async def test_client_status_keeps_refusal_reason(ends: TunnelEnds) -> None:
    async with _server(ends) as server:
        server.refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 21\r\n\r\nfailed authentication"
        client = await ends.client("ours", server.url)
        assert isinstance(client, OurClient)
        async with asyncio.timeout(WAIT):
            while "401: failed authentication" not in client.status.get("last_disconnect_reason", ""):
                await asyncio.sleep(0.05)
        server.refusal = b""
        await server.session()
        await client.has("server")


async def test_client_moves_on_to_server_with_trusted_certificate(ends: TunnelEnds, services: Services) -> None:
    stranger = TunnelEnds(ends.folder / "stranger")
    async with _server(stranger) as wrong, _server(ends) as right:
        await ends.client("ours", wrong.url, right.url)
        await _still_works(await right.session(), services)
