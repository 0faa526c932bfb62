"""asyncio transport for a stream of the tunnel, with back-pressure in both directions, and TLS inside it on request.

A fault of the user of one stream, such as an exception in `data_received` or a reader that never reads, affects only
that stream.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from asyncio import sslproto
from typing import Any, cast

from remuda.tunnel import protocol
from remuda.tunnel.protocol import Buffer
from remuda.tunnel.streams import Stream

log = logging.getLogger(__name__)


class StreamTransport(asyncio.Transport):
    """Transport, and consumer, of a stream that this end has opened."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: Stream, peer: str) -> None:
        super().__init__({"peername": (peer, 0), "stream": stream.number})
        self._loop = loop
        self._stream = stream
        self._protocol: asyncio.BaseProtocol | None = None
        self._reading = True
        self._writing_paused = False
        self._closing = False
        self._lost = self._ended_by_peer = False
        self._error: Exception | None = None
        self.answered: asyncio.Future[str] = loop.create_future()  # "": connected; else why it ended before that

    def begin(self, user: asyncio.BaseProtocol) -> None:
        self._protocol = user
        user.connection_made(self)
        if self._lost:  # the stream ended before it had a protocol
            self._loop.call_soon(self._notify_lost)
        else:
            self._stream.flush()

    # Calls of the stream

    def take(self, data: Buffer) -> int:
        self._set_answered("")
        if not self._reading or self._protocol is None:
            return 0
        try:
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                _feed(self._protocol, data)
            else:
                cast(asyncio.Protocol, self._protocol).data_received(bytes(data))
        except Exception:
            log.exception("receiver of stream %d failed; closing the stream", self._stream.number)
            self.abort()
        return len(data)

    def room(self) -> None:
        if self._writing_paused:
            self._writing_paused = False
            if self._protocol is not None:
                self._protocol.resume_writing()

    def opened(self) -> None:
        self._set_answered("")

    def ended(self, reason: str) -> None:
        self._set_answered(reason)
        self._closing = True
        self._mark_lost(None if reason == protocol.END else ConnectionResetError(reason), ended=True)

    def _set_answered(self, reason: str) -> None:
        if not self.answered.done():
            self.answered.set_result(reason)

    def _mark_lost(self, error: Exception | None, *, ended: bool = False) -> None:
        if not self._lost:
            self._lost, self._error, self._ended_by_peer = True, error, ended
            if self._protocol is not None:
                self._loop.call_soon(self._notify_lost)

    def _notify_lost(self) -> None:
        """Call `connection_lost`; scheduled on the loop, and never from within a call of the protocol."""
        user = self._protocol
        if user is None:
            return
        if (
            self._ended_by_peer
            and self._error is None
            and isinstance(user, (asyncio.Protocol, asyncio.BufferedProtocol))
        ):
            user.eof_received()
        user.connection_lost(self._error)

    # Calls of the protocol

    def write(self, data: Buffer) -> None:
        if self._closing or not data:
            return
        # The stream keeps the buffer until it is sent, and the caller may reuse a bytearray or memoryview at once.
        kept = data if isinstance(data, bytes) else bytes(data)
        if not self._stream.write(kept) and not self._writing_paused and not self._closing:
            self._writing_paused = True
            if self._protocol is not None:
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False  # streams cannot be half-closed

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._stream.close()
            self._mark_lost(None)

    def abort(self) -> None:
        self._force_close(None)

    def _force_close(self, error: Exception | None) -> None:
        """Close the stream with an error. asyncio's TLS calls this when it has failed."""
        self._closing = True
        self._stream.fail("closed by the client of the tunnel")
        self._mark_lost(error)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            # Not at once: the protocol may call this from within `data_received`, which `flush` would call again.
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._reading:
            self._stream.flush()

    def get_write_buffer_size(self) -> int:
        return self._stream.unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass  # the limits of the tunnel apply to all streams

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol


def _feed(user: asyncio.BufferedProtocol, data: Buffer) -> None:
    view = memoryview(data)
    while view:
        room = memoryview(user.get_buffer(len(view)))
        count = min(len(room), len(view))
        room[:count] = view[:count]
        user.buffer_updated(count)
        view = view[count:]


class _Tls(sslproto.SSLProtocol):
    """TLS protocol with a small buffer: most connections through tunnels are silent, and each has its buffer."""

    max_size = 32 * 1024  # instead of 256


async def secured(
    transport: StreamTransport, user: asyncio.BaseProtocol, context: ssl.SSLContext, server_name: str, seconds: float
) -> asyncio.Transport:
    """Run TLS inside the stream. The event loop's `start_tls` accepts only its own transports."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    make: Any = _Tls
    tls = make(
        loop, user, context, waiter, server_side=False, server_hostname=server_name, ssl_handshake_timeout=seconds
    )
    transport.begin(tls)
    try:
        await waiter
        if transport.is_closing():  # the end of the stream also wakes the waiter
            raise ConnectionResetError("the connection ended during the TLS handshake")
    except BaseException:
        transport.abort()
        raise
    return cast(asyncio.Transport, tls._app_transport)
