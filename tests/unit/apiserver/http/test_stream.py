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


def test_something_large_goes_in_pieces_of_one_record() -> None:
    transport, large = Transport(), bytes(range(256)) * 200
    send(transport, large)
    assert [len(piece) for piece in transport.written] == [16384, 16384, 16384, 2048]
    assert b"".join(transport.written) == large


def test_something_small_goes_as_it_is() -> None:
    transport = Transport()
    send(transport, b"x" * 16384)
    assert len(transport.written) == 1


def test_events_go_in_smaller_ones() -> None:
    transport = Transport()
    ChunkSink(transport, chunked=True).write_chunks([b"1\r\na\r\n", b"2000\r\n" + b"b" * 8192 + b"\r\n"])
    assert max(map(len, transport.written)) == 4096
    assert b"".join(transport.written) == b"1\r\na\r\n2000\r\n" + b"b" * 8192 + b"\r\n"


async def test_producer_ends_when_its_client_has_left() -> None:
    """A lost connection resumes writing before it says that it is lost."""
    sink = ChunkSink(GONE, chunked=True)
    sink.pause()
    waiting = asyncio.ensure_future(sink.drain())
    await asyncio.sleep(0)
    assert not waiting.done()
    sink.resume()
    with pytest.raises(asyncio.CancelledError):
        await waiting
