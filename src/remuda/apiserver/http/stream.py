"""The writing end of an endless answer: chunks out, and a wait for slow readers.

What a stream has written and the client has not taken is bounded by the transport's high-water mark plus one write: a
producer that calls `drain` after each write cannot get further ahead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from remuda.kube.web import frame_chunk

_RECORD = 16 * 1024  # the most that TLS encrypts at once
_EVENTS = 4 * 1024  # most events are smaller
_HUGE = 128 * 1024  # what is larger goes as it is: in pieces by the thousand it would take the others' time


def send(transport: asyncio.Transport, data: bytes, piece: int = _RECORD) -> None:
    """In pieces of one TLS record. OpenSSL never gives back what the most it was handed at once has taken, and there
    are watches by the thousand that bring something large once and then nothing: theirs are smaller still."""
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
        """Wait for a slow reader. Once the connection is lost this raises CancelledError, which the connection does a
        moment later: a transport resumes first, and the producer would write all that waits into it."""
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
