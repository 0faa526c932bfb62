"""Our ends as processes, among peers that say anything: they go on serving those who behave, and stay small.

REMUDA_SEED=7 .venv/bin/python -m pytest -s tests/faults/tunnel/test_hostile_peers.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest_asyncio

from tests.faults.conftest import Campaign
from tests.faults.tunnel.mutation import recorded, spoilt
from tests.lab.tunnel_ends import QUICK, End, OurClient, TunnelEnds, tunnel_ends
from tests.lab.tunnel_raw import BINARY, CONNECT, DATA, RawEnd, RawServer, message, raw_client
from tests.lab.tunnel_services import WAIT, Services, answers, connected

_AT_ONCE = 6
_MEGABYTE = 1 << 20
_HEARS_FOR = 0.5  # seconds, of what a victim has to say


@pytest_asyncio.fixture
async def ends(tmp_path: Path) -> AsyncIterator[TunnelEnds]:
    async with tunnel_ends(tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def services() -> AsyncIterator[Services]:
    async with Services().serving() as served:
        yield served


def _well(end: End, before: int, grown: int) -> None:
    assert end.program.lives == 1
    assert end.program.alive
    assert "Traceback" not in end.program.said
    assert end.memory() < before + grown


async def _tells(end: RawEnd, wire: bytes) -> None:
    """Everything, and listens for a moment or until the other has had enough."""
    with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
        async with asyncio.timeout(_HEARS_FOR):
            await end.send_raw(wire)
            while await end.heard_something():
                pass


async def test_server_keeps_serving_during_hostile_client_messages(
    ends: TunnelEnds, services: Services, campaign: Campaign
) -> None:
    server = await ends.server("ours", rate=10_000)
    await ends.client("ours", server.url)
    await server.has("corral")
    way = await server.forward(services.echo)
    await answers(way)
    before, turn = server.memory(), asyncio.Semaphore(_AT_ONCE)

    async def attack(seed: int) -> None:
        chance = Random(seed)
        messages, _ = recorded(chance, of_client=True)
        headers = {"X-Tunnel-ID": "rustlers", "X-Tunnel-Node": f"{seed % 7}"}
        async with turn, raw_client(server.url, ends.files["ca"], headers) as end:
            await _tells(end, spoilt(chance, messages, masks=True))

    async with connected(way) as (reader, writer):
        writer.write(b"before")
        assert await asyncio.wait_for(reader.readexactly(6), WAIT) == b"before"
        async with asyncio.TaskGroup() as attacks:
            for number in campaign.rounds(60, full=60):
                attacks.create_task(attack(campaign.seed + number))
        writer.write(b"after!")
        assert await asyncio.wait_for(reader.readexactly(6), WAIT) == b"after!"
    await answers(way)
    assert "corral:roan" not in await server.ends()
    _well(server, before, 64 * _MEGABYTE)


async def test_client_reconnects_after_hostile_server_messages(
    ends: TunnelEnds, services: Services, campaign: Campaign
) -> None:
    async with RawServer(ends.files["certificate"], ends.files["key"]).serving() as server:
        client = await ends.client("ours", server.url)
        assert isinstance(client, OurClient)
        first = await server.session()
        before = client.memory()
        first.close()
        for number in campaign.rounds(15, full=15):
            chance = Random(campaign.seed + number)
            messages, _ = recorded(chance, of_client=False)
            end = await server.session()
            await _tells(end, spoilt(chance, messages, masks=False))
            end.close()
        end = await server.session()
        await end.send(message(CONNECT, 6, f"tcp/{services.echo}".encode()), message(DATA, 6, b"hello"))
        assert (await end.hear_of("data")).payload == b"hello"
        _well(client, before, 32 * _MEGABYTE)


async def test_peer_that_never_reads_is_disconnected_with_bounded_memory(ends: TunnelEnds) -> None:
    """Each word about a stream there is not wants an answer, and none of them is read."""
    server = await ends.server("ours", **QUICK)
    before = server.memory()
    async with raw_client(server.url, ends.files["ca"], {"X-Tunnel-ID": "rustlers"}) as end:
        await server.has("rustlers")
        end.stop_listening()
        words = b"".join(end.frame(BINARY, message(DATA, number, b"?")) for number in range(5000))
        async with asyncio.timeout(WAIT):
            while "rustlers" in await server.sessions():
                await end.send_raw(words)
                assert server.memory() < before + 64 * _MEGABYTE
    assert "not read" in (await server.ends())["rustlers"] or "accepted no data" in (await server.ends())["rustlers"]
    _well(server, before, 64 * _MEGABYTE)
