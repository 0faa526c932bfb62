"""Frames: whole messages whatever the pieces, bounded memory whatever the peer, and the same wire as aiohttp's."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from remuda.tunnel import handshake
from remuda.tunnel.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    PROTOCOL_ERROR,
    TEXT,
    TOO_BIG,
    Frames,
    WebSocketError,
    apply_mask,
    close_payload,
    close_reason,
)
from tests.lab.limits import LIMIT_SECONDS


def _frame(opcode: int, payload: bytes = b"", *, final: bool = True, key: bytes | None = None, size: int = -1) -> bytes:
    """A frame by hand; `size` is what it claims to have."""
    size = len(payload) if size < 0 else size
    bit = 0x80 if key is not None else 0
    head = bytes([(0x80 if final else 0) | opcode])
    if size <= 125:
        head += bytes([bit | size])
    elif size <= 0xFFFF:
        head += bytes([bit | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([bit | 127]) + size.to_bytes(8, "big")
    if key is None:
        return head + payload
    return head + key + bytes(byte ^ key[place % 4] for place, byte in enumerate(payload))


def _fed(frames: Frames, *pieces: bytes) -> list[tuple[int, bytes]]:
    return [(opcode, bytes(payload)) for piece in pieces for opcode, payload in frames.feed(piece)]


@given(
    st.lists(st.tuples(st.sampled_from([BINARY, TEXT]), st.binary(max_size=300)), max_size=8),
    st.booleans(),
    st.data(),
)
def test_frames_round_trip_regardless_of_chunking(
    messages: list[tuple[int, bytes]], from_client: bool, data: st.DataObject
) -> None:
    sender, receiver = Frames(mask=from_client), Frames(mask=not from_client)
    wire = b"".join(bytes(part) for opcode, payload in messages for part in sender.frame(opcode, payload))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    pieces = [wire[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert _fed(receiver, *pieces) == messages


@pytest.mark.parametrize("size", [0, 1, 64, 65, 125, 126, 127, 0xFFFF, 0x10000, 300_001])
@pytest.mark.parametrize("from_client", [True, False])
def test_frame_length_encoding_matches_payload_size(size: int, from_client: bool) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    buffers = Frames(mask=from_client).frame(BINARY, payload[: size // 2], memoryview(payload)[size // 2 : size])
    wire = b"".join(bytes(buffer) for buffer in buffers)
    key = wire[len(wire) - size - 4 : len(wire) - size] if from_client else None
    assert wire == _frame(BINARY, payload[:size], key=key)
    assert _fed(Frames(mask=not from_client), wire) == [(BINARY, payload[:size])]


@given(st.binary(max_size=1000), st.binary(min_size=4, max_size=4))
def test_mask_xors_each_byte_with_the_key(data: bytes, key: bytes) -> None:
    buffer = bytearray(data)
    apply_mask(key, buffer)
    assert bytes(buffer) == bytes(byte ^ key[place % 4] for place, byte in enumerate(data))


def test_client_uses_a_new_mask_key_for_each_frame() -> None:
    frames = Frames(mask=True)
    assert len({bytes(frames.frame(BINARY, b"same")[0][2:6]) for _ in range(50)}) == 50


@given(st.lists(st.lists(st.binary(max_size=200), max_size=3), max_size=5), st.booleans(), st.integers(0, 500))
def test_messages_written_into_a_reused_buffer_are_read_correctly(
    messages: list[list[bytes]], from_client: bool, before: int
) -> None:
    sender, receiver = Frames(mask=from_client), Frames(mask=not from_client)
    buffer, at = bytearray(b"\xaa" * before), 0
    for parts in messages:
        at = sender.put(buffer, at, BINARY, parts)
    assert _fed(receiver, bytes(buffer[:at])) == [(BINARY, b"".join(parts)) for parts in messages]
    assert buffer[at:] == b"\xaa" * (before - at)


def test_unmasked_frame_does_not_copy_payload() -> None:
    payload = memoryview(bytearray(40_000))
    assert Frames(mask=False).frame(BINARY, b"head", payload)[2] is payload


def test_fragments_are_joined_and_interleaved_control_frames_delivered() -> None:
    parts = [bytes([number]) * 4096 for number in range(256)]
    wire = _frame(BINARY, parts[0], final=False, key=b"abcd")
    for part in parts[1:]:
        wire += _frame(PING, b"?", key=b"efgh") + _frame(CONTINUATION, part, final=False, key=b"ijkl")
    wire += _frame(CONTINUATION, key=b"mnop")
    found = _fed(Frames(mask=False), *(wire[at : at + 1000] for at in range(0, len(wire), 1000)))
    assert found == [(PING, b"?")] * 255 + [(BINARY, b"".join(parts))]


_FRAGMENT_SIZES = st.sampled_from([0, 1, 125, 126, 127, 500, 4088, 0xFFFF, 0x10000])


@given(st.lists(st.lists(_FRAGMENT_SIZES, min_size=1, max_size=6), max_size=3), st.data())
def test_fragments_of_any_size_are_joined_regardless_of_chunking(
    messages: list[list[int]], data: st.DataObject
) -> None:
    wire, wanted = b"", []
    for sizes in messages:
        parts = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
        wanted.append((BINARY, b"".join(parts)))
        for number, part in enumerate(parts):
            key = bytes([7, number, 0, 255])
            wire += _frame(CONTINUATION if number else BINARY, part, final=number == len(parts) - 1, key=key)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    pieces = [wire[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert _fed(Frames(mask=False), *pieces) == wanted


def test_message_after_fragmented_message_is_separate() -> None:
    wire = _frame(BINARY, b"a", final=False) + _frame(CONTINUATION, b"b") + _frame(TEXT, b"c")
    assert _fed(Frames(mask=True), wire) == [(BINARY, b"ab"), (TEXT, b"c")]


def test_input_buffer_may_be_reused_after_feed() -> None:
    frames, buffer = Frames(mask=True), bytearray(_frame(BINARY, b"first") + _frame(BINARY, b"second")[:4])
    found = list(frames.feed(memoryview(buffer)))
    buffer[:] = bytes(len(buffer))
    found += frames.feed(_frame(BINARY, b"second")[4:])
    assert [bytes(payload) for _, payload in found] == [b"first", b"second"]


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (bytes([0xC2, 0x00]), PROTOCOL_ERROR),  # an extension's bit
        (_frame(0x3), PROTOCOL_ERROR),
        (_frame(0xB), PROTOCOL_ERROR),
        (_frame(CONTINUATION, b"x"), PROTOCOL_ERROR),
        (_frame(BINARY, b"x", final=False) + _frame(BINARY, b"y"), PROTOCOL_ERROR),
        (_frame(PING, b"x" * 126), PROTOCOL_ERROR),
        (_frame(PING, b"x", final=False), PROTOCOL_ERROR),
        (_frame(BINARY, b"x", key=b"abcd"), PROTOCOL_ERROR),  # a server that masks
        (_frame(BINARY, size=1001), TOO_BIG),
        (_frame(BINARY, size=(1 << 64) - 1), TOO_BIG),
        (_frame(BINARY, b"x" * 600, final=False) + _frame(CONTINUATION, size=401), TOO_BIG),
    ],
)
def test_invalid_frame_raises_websocket_error_with_close_code(wire: bytes, code: int) -> None:
    frames = Frames(mask=True, limit=1000)
    before = _frame(PONG, b"still heard")
    heard = []
    with pytest.raises(WebSocketError) as caught:
        heard.extend(frames.feed(before + wire))
    assert caught.value.code == code
    assert heard == [(PONG, b"still heard")]


def test_unmasked_client_frame_is_rejected() -> None:
    with pytest.raises(WebSocketError, match="unmasked frame"):
        _fed(Frames(mask=False), _frame(BINARY, b"x"))


def test_small_pieces_of_large_message_have_bounded_memory() -> None:
    frames = Frames(mask=True, limit=1 << 20)
    fragment = _frame(CONTINUATION, b"x", final=False) * 1000
    tracemalloc.start()
    try:
        _fed(frames, _frame(BINARY, final=False))
        for _ in range(20):
            _fed(frames, fragment)
        for byte in _frame(CONTINUATION, b"y" * 10_000)[:-1]:
            _fed(frames, bytes([byte]))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 150_000


@given(st.lists(st.binary(max_size=40), max_size=20), st.booleans())
def test_arbitrary_bytes_raise_only_protocol_error_or_too_big(pieces: list[bytes], mask: bool) -> None:
    code = PROTOCOL_ERROR
    try:
        _fed(Frames(mask=mask, limit=100), *pieces)
    except WebSocketError as error:
        code = error.code
    assert code in (PROTOCOL_ERROR, TOO_BIG)


def test_close_reason_is_truncated_at_character_boundary() -> None:
    payload = close_payload(1008, "é" * 100)
    assert close_reason(payload) == (1008, "é" * 61)
    assert close_reason(b"") == (1005, "")


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """aiohttp's own WebSocket, which returns what it hears; the port."""

    async def answer(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False, max_msg_size=0)
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data)
        return socket

    application = web.Application()
    application.router.add_get("/echo", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def test_client_interoperates_with_aiohttp_server(echo: int) -> None:
    messages = [b"", b"small", bytes(range(256)) * 1000]
    async with asyncio.timeout(LIMIT_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", echo)
        opening = handshake.ClientHandshake(f"127.0.0.1:{echo}", "/echo")
        writer.write(opening.request)
        while not opening.feed(await reader.read(65536)):
            pass
        frames = Frames(mask=True)
        for message in messages:
            writer.writelines(frames.frame(BINARY, message))
        writer.writelines(frames.frame(CLOSE, close_payload(1000, "enough")))
        found = _fed(frames, opening.rest)
        while not found or found[-1][0] != CLOSE:
            found += _fed(frames, await reader.read(65536))
        writer.close()
    assert found[:-1] == [(BINARY, message) for message in messages]
    assert close_reason(found[-1][1])[0] == 1000


async def test_server_interoperates_with_aiohttp_client() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        writer.write(handshake.accepted(first.split()[0], dict(line.split(": ", 1) for line in lines)))
        frames = Frames(mask=False)
        while data := await reader.read(65536):
            for opcode, payload in frames.feed(data):
                writer.writelines(frames.frame(opcode, payload))
                if opcode == CLOSE:
                    writer.close()
                    return

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        asyncio.timeout(LIMIT_SECONDS),
        server,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{port}/", max_msg_size=0) as socket,
    ):
        for message in (b"", b"small", bytes(range(256)) * 1000):
            await socket.send_bytes(message)
            assert await socket.receive_bytes() == message
        await socket.close(code=1000)
        assert socket.close_code == 1000
