"""What goes through a tunnel comes out whole and in order, whoever is at its ends; no stream is another's burden."""

from __future__ import annotations

import asyncio

import pytest

from tests.interop.tunnel.conftest import Tunnel
from tests.lab.tunnel_services import (
    WAIT,
    Services,
    connected,
    digest_of,
    echoed,
    ended,
    length_header,
    send_to_sink,
    sink_digest,
    source_digest,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEGABYTE = 1 << 20


@pytest.fixture
def services(shared_services: Services) -> Services:
    return shared_services


def _needs_go_client(tunnel: Tunnel) -> None:
    if not tunnel.client_is_go:
        pytest.skip("our client dials nothing through the tunnel")


async def test_service_beside_the_client_is_reached_through_the_server(tunnel: Tunnel, services: Services) -> None:
    assert await echoed(await tunnel.server.forward(services.echo))


async def test_service_beside_the_server_is_reached_through_the_client(tunnel: Tunnel, services: Services) -> None:
    _needs_go_client(tunnel)
    assert await echoed(await tunnel.client.forward(services.echo))


async def test_both_ends_may_dial_at_the_same_time(tunnel: Tunnel, services: Services) -> None:
    _needs_go_client(tunnel)
    if tunnel.server_is_go:
        pytest.skip("upstream's ends give the same numbers to different streams")
    there, back = await tunnel.server.forward(services.echo), await tunnel.client.forward(services.echo)
    texts = [b"number %d of many" % number * 100 for number in range(40)]
    found = await asyncio.gather(*(echoed((there, back)[at % 2], text) for at, text in enumerate(texts)))
    assert all(found)


async def test_two_hundred_concurrent_streams_echo_correctly(tunnel: Tunnel, services: Services) -> None:
    way = await tunnel.server.forward(services.echo)
    everybody_is_there = asyncio.Barrier(200)

    async def talk(number: int) -> bool:
        async with connected(way) as (reader, writer):
            for turn in range(3):
                text = b"%d in turn %d " % (number, turn) * 50
                writer.write(text)
                if await reader.readexactly(len(text)) != text:
                    return False
                await everybody_is_there.wait()
        return True

    async with asyncio.timeout(WAIT):
        assert all(await asyncio.gather(*(talk(number) for number in range(200))))


async def test_large_upload_arrives_whole(tunnel: Tunnel, services: Services) -> None:
    assert await sink_digest(await tunnel.server.forward(services.sink), 80 * MEGABYTE) == digest_of(80 * MEGABYTE)


async def test_large_download_arrives_whole(tunnel: Tunnel, services: Services) -> None:
    assert await source_digest(await tunnel.server.forward(services.source), 80 * MEGABYTE) == digest_of(80 * MEGABYTE)


async def test_large_transfers_in_both_directions_at_once_arrive_whole(tunnel: Tunnel, services: Services) -> None:
    if tunnel.pair == "go-go":
        pytest.skip("upstream's two ends can wait for each other for good, and every later stream with them")
    up, down = await tunnel.server.forward(services.sink), await tunnel.server.forward(services.source)
    size = 16 * MEGABYTE
    found = await asyncio.gather(
        *(sink_digest(up, size) for _ in range(3)), *(source_digest(down, size) for _ in range(3))
    )
    assert set(found) == {digest_of(size)}


async def test_last_bytes_before_stream_end_are_delivered(tunnel: Tunnel, services: Services) -> None:
    down = await tunnel.server.forward(services.source)
    sizes = [1, 100, 32 * 1024, 32 * 1024 + 1, 64 * 1024 + 1, 300_000] * 8
    assert await asyncio.gather(*(source_digest(down, size) for size in sizes)) == [digest_of(size) for size in sizes]


async def test_service_that_does_not_read_does_not_block_other_streams(tunnel: Tunnel, services: Services) -> None:
    """It gets what the buffers on the way hold, then its sender waits, and in the end it gets everything."""
    services.unblocked.clear()
    blocked_sink, sink = await tunnel.server.forward(services.blocked_sink), await tunnel.server.forward(services.sink)
    size = 64 * MEGABYTE  # more than all sockets on the way can hold
    async with connected(blocked_sink) as (reader, writer):
        sending = asyncio.create_task(send_to_sink(writer, size))
        assert await sink_digest(sink, 8 * MEGABYTE) == digest_of(8 * MEGABYTE)
        assert not sending.done(), "a tunnel has swallowed what nobody reads"
        services.unblocked.set()
        async with asyncio.timeout(WAIT):
            await sending
            assert await reader.readexactly(32) == digest_of(size)


async def test_caller_that_does_not_read_does_not_block_other_streams(tunnel: Tunnel, services: Services) -> None:
    down = await tunnel.server.forward(services.source)
    async with connected(down) as (reader, writer):
        writer.write(length_header(32 * MEGABYTE))
        await reader.readexactly(1)
        assert await source_digest(down, 8 * MEGABYTE) == digest_of(8 * MEGABYTE)
        async with asyncio.timeout(WAIT):
            rest = 32 * MEGABYTE - 1
            while data := await reader.read(1 << 16):
                rest -= len(data)
        assert rest == 0


async def test_hundred_streams_with_one_unread_stay_within_memory_limit(tunnel: Tunnel, services: Services) -> None:
    down = await tunnel.server.forward(services.source)
    ours = [end for end in (tunnel.server, tunnel.client) if end.program.name.startswith("our-")]
    before = [end.memory() for end in ours]
    async with connected(down) as (_, writer):
        writer.write(length_header(64 * MEGABYTE))
        found = await asyncio.gather(*(source_digest(down, MEGABYTE) for _ in range(99)))
        assert set(found) == {digest_of(MEGABYTE)}
        grown = [end.memory() - was for end, was in zip(ours, before, strict=True)]
        assert all(grew < 150 * MEGABYTE for grew in grown), grown


async def test_echo_with_full_buffers_in_both_directions_completes(tunnel: Tunnel, services: Services) -> None:
    """Both directions of one stream stand still at once, because the caller reads nothing while it writes."""
    if tunnel.has_go:
        pytest.skip("upstream's one flag for both directions locks such a stream up (remotedialer#57)")
    size = 96 * MEGABYTE  # more than all sockets on the way there and back can hold
    async with connected(await tunnel.server.forward(services.echo)) as (reader, writer):
        sending = asyncio.create_task(send_to_sink(writer, size))
        stuck, _ = await asyncio.wait({sending}, timeout=1.0)
        assert not stuck, "a tunnel has swallowed what nobody reads"
        async with asyncio.timeout(WAIT):
            missing = size + len(length_header(size))
            while missing:
                missing -= len(await reader.read(1 << 16))
            await sending


async def test_closed_port_ends_only_that_stream(tunnel: Tunnel, services: Services) -> None:
    kept, refused = await tunnel.server.forward(services.echo), await tunnel.server.forward(services.closed_port)
    before = len(await tunnel.server.failures())
    async with connected(kept) as (reader, writer):
        async with connected(refused) as stream:
            assert await ended(stream) == b""
        assert "refused" in await tunnel.server.failure(before + 1)
        writer.write(b"still here")
        async with asyncio.timeout(WAIT):
            assert await reader.readexactly(10) == b"still here"


async def test_closing_caller_closes_service_connection(tunnel: Tunnel, services: Services) -> None:
    way = await tunnel.server.forward(services.echo)
    async with asyncio.timeout(WAIT):
        while services.open:
            await asyncio.sleep(0.02)  # of tests before
    async with connected(way) as (reader, writer):
        writer.write(b"hello")
        await reader.readexactly(5)
        assert services.open == 1
    async with asyncio.timeout(WAIT):
        while services.open:
            await asyncio.sleep(0.02)


async def test_long_address_arrives_whole(tunnel: Tunnel, services: Services) -> None:
    """Ends older than v0.5 read 100 bytes of it; v0.6 and ours read 266."""
    async with services.echo_at(tunnel.socket) as path:
        assert len(f"unix/{path}") > 100
        assert await echoed(await tunnel.server.forward(path, network="unix"))
