"""What is handed to the transport at once: as much as TLS encrypts at once, and in the right order."""

from __future__ import annotations

import asyncio

import pytest

from remuda.apiserver.http.stream import GONE, ChunkSink, send


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))


def test_large_write_is_split_into_tls_record_sized_pieces() -> None:
    transport, large = Transport(), bytes(range(256)) * 200
    send(transport, large)
    assert [len(piece) for piece in transport.written] == [16384, 16384, 16384, 2048]
    assert b"".join(transport.written) == large


def test_small_write_is_not_split() -> None:
    transport = Transport()
    send(transport, b"x" * 16384)
    assert len(transport.written) == 1


def test_event_chunks_are_split_into_smaller_pieces() -> None:
    transport = Transport()
    ChunkSink(transport, chunked=True).write_chunks([b"1\r\na\r\n", b"2000\r\n" + b"b" * 8192 + b"\r\n"])
    assert max(map(len, transport.written)) == 4096
    assert b"".join(transport.written) == b"1\r\na\r\n2000\r\n" + b"b" * 8192 + b"\r\n"


async def test_stream_producer_is_cancelled_when_the_client_disconnects() -> None:
    """A lost connection resumes writing before it says that it is lost."""
    sink = ChunkSink(GONE, chunked=True)
    sink.pause()
    waiting = asyncio.ensure_future(sink.drain())
    await asyncio.sleep(0)
    assert not waiting.done()
    sink.resume()
    with pytest.raises(asyncio.CancelledError):
        await waiting
