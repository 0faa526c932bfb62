"""Writing end of a streaming answer: sends chunks, and waits for slow readers.

The data that a stream has written and the client has not read is limited to the transport's high-water mark plus one
write, if the producer calls `drain` after each write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from remuda.kube.web import frame_chunk

_RECORD = 16 * 1024  # maximum size of a TLS record
_EVENTS = 4 * 1024  # most events are smaller
_HUGE = 128 * 1024  # larger data is sent whole: thousands of pieces would delay other requests


def send(transport: asyncio.Transport, data: bytes, piece: int = _RECORD) -> None:
    """Send data in pieces of one TLS record. OpenSSL never shrinks its buffer below the largest piece that it was
    given, and thousands of watches receive one large object and then nothing: their pieces are smaller still.
    """
    if not piece < len(data) <= _HUGE:
        transport.write(data)
        return
    view = memoryview(data)
    for begin in range(0, len(data), piece):
        transport.write(view[begin : begin + piece])


class ChunkSink:
    __slots__ = ("_chunked", "_resumed", "_transport")

    def __init__(self, transport: asyncio.Transport, *, chunked: bool) -> None:
        self._transport = transport
        self._chunked = chunked
        self._resumed: asyncio.Future[None] | None = None

    def write(self, data: bytes) -> None:
        if data:
            send(self._transport, frame_chunk(data) if self._chunked else data)

    def write_chunk(self, chunk: bytes) -> None:
        send(self._transport, chunk if self._chunked else _unframed(chunk), _EVENTS)

    def write_chunks(self, chunks: Sequence[bytes]) -> None:
        send(self._transport, b"".join(chunks if self._chunked else map(_unframed, chunks)), _EVENTS)

    async def drain(self) -> None:
        """Wait for a slow reader. Raise CancelledError if the connection is lost. The connection cancels the producer a
        moment later, but the transport resumes it first, and it would write all pending data.
        """
        if self._resumed is not None:
            await self._resumed
        if self._transport.is_closing():
            raise asyncio.CancelledError("the client has left")

    def finish(self) -> None:
        if self._chunked:
            self._transport.write(b"0\r\n\r\n")

    def pause(self) -> None:
        if self._resumed is None:
            self._resumed = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        self._resumed = None


def _unframed(chunk: bytes) -> bytes:
    """Return the content of a chunk, for HTTP/1.0 clients, which do not support chunks."""
    return chunk[chunk.index(b"\r\n") + 2 : -2]


class _Gone(asyncio.Transport):
    """Transport that replaces the real one after the connection is lost: closed, and drops what is written."""

    def is_closing(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: object) -> None: ...
    def writelines(self, list_of_data: object) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


GONE = _Gone()
