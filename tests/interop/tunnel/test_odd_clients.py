"""Clients that say what clients normally do not, at our server; and at upstream's where that behaves alike, by which we
know that what we take for the protocol is it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import pytest_asyncio

from tests.lab.tunnel_ends import KINDS, QUICK, End, TunnelEnds, tunnel_ends
from tests.lab.tunnel_raw import (
    ADD,
    BINARY,
    CONNECT,
    DATA,
    ERROR,
    PAUSE,
    PING,
    PONG,
    REMOVE,
    RESUME,
    TEXT,
    RawEnd,
    answer_to,
    message,
    raw_client,
    sync,
)
from tests.lab.tunnel_services import WAIT, Services, Stream, connected, ended

MEGABYTE = 1 << 20
HEADERS = {"X-Tunnel-ID": "corral", "X-Tunnel-Node": "roan"}
FAR = "10.20.30.40:5000"  # where the client says it has connected to


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ends(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TunnelEnds]:
    async with tunnel_ends(tmp_path_factory.mktemp("odd-clients")) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(kind: str, ends: TunnelEnds) -> End:
    """Of either kind, one for all tests: each leaves it as it was."""
    return await ends.server(kind)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ours(ends: TunnelEnds, shared_services: Services) -> End:
    return await ends.server("ours", allow=[f"tcp/{shared_services.echo}"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def impatient(ends: TunnelEnds) -> End:
    return await ends.server("ours", **QUICK)


@asynccontextmanager
async def _joined(ends: TunnelEnds, server: End) -> AsyncIterator[RawEnd]:
    await server.has()
    async with raw_client(server.url, ends.files["ca"], HEADERS) as end:
        await server.has("corral")
        yield end


@asynccontextmanager
async def _stream(server: End, end: RawEnd) -> AsyncIterator[tuple[int, Stream]]:
    """A caller at the server, and the number of its stream."""
    async with connected(await server.forward(FAR)) as caller:
        caller[1].write(b"hello")
        connect = await end.hear_of("connect")
        assert connect.payload == f"tcp/{FAR}".encode()
        first = await end.hear_of("data")
        assert (first.stream, first.payload) == (connect.stream, b"hello")
        yield connect.stream, caller


async def _reads(caller: Stream, size: int) -> bytes:
    return await asyncio.wait_for(caller[0].readexactly(size), WAIT)


async def _still_works(server: End, end: RawEnd) -> None:
    async with _stream(server, end) as (number, caller):
        await end.send(message(DATA, number, b"answer"))
        assert await _reads(caller, 6) == b"answer"


async def test_client_without_identity_gets_401_before_upgrade(server: End, ends: TunnelEnds) -> None:
    assert await answer_to(server.url, ends.files["ca"], {}) == (401, "failed authentication")


async def test_fragmented_message_with_interleaved_pings_is_reassembled(server: End, ends: TunnelEnds) -> None:
    async with _joined(ends, server) as end, _stream(server, end) as (number, caller):
        content = bytes(range(256)) * 4096
        whole = message(DATA, number, content)
        frames = []
        for at in range(0, len(whole), 4096):
            frames.append(end.frame(0 if at else BINARY, whole[at : at + 4096], final=at + 4096 >= len(whole)))
            frames.append(end.frame(PING, b""))
        await end.send_raw(*frames)
        assert await _reads(caller, len(content)) == content
        await end.asked()
        assert end.pongs >= 1
        await _still_works(server, end)


async def test_message_of_megabytes_arrives_whole(server: End, ends: TunnelEnds) -> None:
    async with _joined(ends, server) as end, _stream(server, end) as (number, caller):
        content = b"0123456789abcdef" * (MEGABYTE // 2)
        await end.send(message(DATA, number, content))
        assert await _reads(caller, len(content)) == content


async def test_repeated_eof_and_late_data_are_harmless(kind: str, server: End, ends: TunnelEnds) -> None:
    async with _joined(ends, server) as end:
        async with _stream(server, end) as (number, caller):
            await end.send(message(DATA, number, b"last words"), *[message(ERROR, number, b"EOF")] * 3)
            assert await ended(caller) == b"last words"
            await end.asked()
            await end.send(*[message(DATA, number, b"too late")] * 5)
            heard = [said for said in await end.asked() if b"not found" in said.payload]
            assert {said.stream for said in heard} == {number}
            assert len(heard) == (1 if kind == "ours" else 5)
        await _still_works(server, end)


async def test_messages_for_unknown_streams_are_ignored(server: End, ends: TunnelEnds) -> None:
    async with _joined(ends, server) as end:
        for number in (1, 0, -5, (1 << 63) - 1, -(1 << 63)):
            await end.send(*(message(what, number) for what in (PAUSE, RESUME)), message(ERROR, number, b"gone"))
        await end.send(message(ADD, 0, b"other/7"), message(REMOVE, 0, b"other/7"), message(42, 1, b"from the future"))
        assert await end.asked() == []
        await _still_works(server, end)


async def test_sync_right_after_connect_keeps_stream(ours: End, ends: TunnelEnds) -> None:
    """Which upstream's server gets wrong (remotedialer#150): the client had not heard of the stream yet."""
    async with _joined(ends, ours) as end, _stream(ours, end) as (number, caller):
        await end.send(sync(), message(DATA, number, b"answer"))
        assert await _reads(caller, 6) == b"answer"
        await end.send(sync(number), sync(number))
        caller[1].write(b"again")
        assert (await end.hear_of("data")).payload == b"again"


async def test_stream_missing_from_two_syncs_is_ended(server: End, ends: TunnelEnds) -> None:
    async with _joined(ends, server) as end, _stream(server, end) as (_, caller):
        await end.send(sync(), sync())
        assert await ended(caller) == b""
        await _still_works(server, end)


@pytest.mark.parametrize(
    ("opcode", "payload"),
    [(TEXT, b"hello"), (BINARY, b""), (BINARY, b"\xff" * 12), (BINARY, message(DATA, 2)[:-1]), (BINARY, sync(1)[:-1])],
    ids=["text", "empty", "no number", "cut short", "half a list"],
)
async def test_protocol_violation_ends_session(
    kind: str, server: End, opcode: int, payload: bytes, ends: TunnelEnds
) -> None:
    async with _joined(ends, server) as end:
        await end.send_raw(end.frame(opcode, payload))
        if kind == "ours":  # upstream's forgets the session and leaves the connection open
            await end.gone()
        await server.has()
    async with _joined(ends, server) as end:
        await _still_works(server, end)


async def test_oversized_message_ends_session_without_buffering(ours: End, ends: TunnelEnds) -> None:
    async with _joined(ends, ours) as end:
        await end.send_raw(end.frame(BINARY, b"", final=False)[:1] + b"\xff" + (1 << 40).to_bytes(8, "big") + b"mask")
        await end.gone()
    assert "larger than" in (await ours.ends())["corral:roan"]


async def test_paused_stream_sends_nothing_until_resumed(server: End, ends: TunnelEnds) -> None:
    async with _joined(ends, server) as end, _stream(server, end) as (number, caller):
        await end.send(message(PAUSE, number))
        await end.asked()
        caller[1].write(b"x" * MEGABYTE)
        assert [said for said in await end.for_a_while() if said.kind == "data"] == []
        await end.send(message(RESUME, number))
        received = 0
        while received < MEGABYTE:
            received += len((await end.hear_of("data")).payload)
        assert received == MEGABYTE


async def test_unread_data_triggers_pause_and_later_resume(server: End, ends: TunnelEnds) -> None:
    async with _joined(ends, server) as end, _stream(server, end) as (number, caller):
        sent = 0
        piece = message(DATA, number, b"x" * 32768)
        pausing = asyncio.create_task(end.hear_of("pause"))
        while not pausing.done():
            await end.send(piece)
            sent += 32768
            await asyncio.sleep(0)
            assert sent < 512 * MEGABYTE
        assert (await pausing).stream == number
        resuming = asyncio.create_task(end.hear_of("resume"))
        received = 0
        async with asyncio.timeout(WAIT):
            while received < sent:
                received += len(await caller[0].read(1 << 18))
        assert (await resuming).stream == number


async def test_client_ignoring_pause_loses_only_that_stream(ours: End, ends: TunnelEnds) -> None:
    """Upstream's server would take all of it."""
    async with (
        _joined(ends, ours) as end,
        _stream(ours, end) as (number, _),
        _stream(ours, end) as (other, caller),
    ):
        piece = message(DATA, number, b"x" * 65536)
        failing = asyncio.create_task(end.hear_of("error"))
        sent = 0
        while not failing.done():
            await end.send(piece)
            sent += 65536
            await asyncio.sleep(0)
            assert sent < 512 * MEGABYTE
        assert (await failing).stream == number
        await end.send(message(DATA, other, b"unharmed"))
        assert await _reads(caller, 8) == b"unharmed"


async def test_pings_are_answered_before_waiting_data(ours: End, ends: TunnelEnds) -> None:
    """A Go client gives a tunnel up whose pongs wait behind megabytes for a minute."""
    async with _joined(ends, ours) as end, _stream(ours, end) as (_, caller):
        caller[1].write(b"x" * 64 * MEGABYTE)
        await end.hear_of("data")
        await end.send_raw(end.frame(PING, b""))
        before = 0
        async with asyncio.timeout(WAIT):
            while (frame := await end.next_frame())[0] != PONG:
                before += len(frame[2])
        assert before < 32 * MEGABYTE, "what the sockets and one batch hold, and no more"


async def test_unresponsive_client_is_disconnected(impatient: End, ends: TunnelEnds) -> None:
    async with _joined(ends, impatient) as end:
        end.deaf = True
        await end.gone()
        assert end.pings >= 1
    assert "received nothing" in (await impatient.ends())["corral:roan"]


async def test_new_session_replaces_only_session_of_same_node(ours: End, ends: TunnelEnds) -> None:
    url, authority = ours.url, ends.files["ca"]
    async with AsyncExitStack() as stays, raw_client(url, authority, HEADERS) as first:
        async with raw_client(url, authority, {**HEADERS, "X-Tunnel-Node": "bay"}) as neighbour:
            second = await stays.enter_async_context(raw_client(url, authority, HEADERS))
            await first.gone()
            assert "displaced" in (await ours.ends())["corral:roan"]
            assert await neighbour.asked() == []
        async with asyncio.timeout(WAIT):  # alone: where one has just failed to reach something, another is asked first
            while await ours.nodes() != ["corral:roan"]:
                await asyncio.sleep(0.02)
        await _still_works(ours, second)


async def test_new_streams_use_newest_session_with_fallback(ours: End, ends: TunnelEnds) -> None:
    url, authority = ours.url, ends.files["ca"]
    newer = {**HEADERS, "X-Tunnel-Node": "bay", "X-Remuda-Tunnel": "confirms"}
    async with raw_client(url, authority, HEADERS) as old:
        await ours.has("corral")
        async with raw_client(url, authority, newer) as new:
            async with asyncio.timeout(WAIT):
                while len(await ours.nodes()) < 2:
                    await asyncio.sleep(0.02)
            async with connected(await ours.forward(FAR)) as caller:
                asked = await new.hear_of("connect")
                await new.send(message(ERROR, asked.stream, b"dial tcp: no route to host"))
                asked = await old.hear_of("connect")
                await old.send(message(DATA, asked.stream, b"reached"))
                assert await _reads(caller, 7) == b"reached"


async def test_forbidden_dial_requests_fail_only_their_stream(
    ours: End, ends: TunnelEnds, shared_services: Services
) -> None:
    async with _joined(ends, ours) as end:
        await end.send(
            message(CONNECT, 7, f"tcp/{shared_services.sink}".encode()),
            message(CONNECT, 9, b"nonsense"),
            message(CONNECT, 11, b"tcp/" + b"a" * 300),
            message(CONNECT, 13, b"udp/" + shared_services.echo.encode()),
        )
        heard = await end.asked()
        assert [(said.kind, said.stream) for said in heard] == [("error", number) for number in (7, 9, 11, 13)]
        await end.send(message(CONNECT, 15, f"tcp/{shared_services.echo}".encode()), message(DATA, 15, b"hello"))
        assert (await end.hear_of("data")).payload == b"hello"


async def test_reused_stream_number_closes_previous_stream(
    ours: End, ends: TunnelEnds, shared_services: Services
) -> None:
    async with _joined(ends, ours) as end:
        connect = message(CONNECT, 7, f"tcp/{shared_services.echo}".encode())
        await end.send(connect, message(DATA, 7, b"one"))
        assert (await end.hear_of("data")).payload == b"one"
        await end.send(connect, message(DATA, 7, b"two"))
        assert (await end.hear_of("data")).payload == b"two"
        async with asyncio.timeout(WAIT):
            while shared_services.open != 1:
                await asyncio.sleep(0.02)
