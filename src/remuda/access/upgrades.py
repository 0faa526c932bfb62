"""A connection that stops being HTTP: exec, attach and port-forward, by WebSocket or SPDY.

The request uses a separate connection to the cluster. If the cluster agrees, bytes are copied in both directions, no
faster than the other side reads. When either side closes, pending data is flushed and the other side is closed: TLS
connections cannot be half-closed here. If the cluster declines, its response is relayed like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from remuda.access.headers import Header
from remuda.access.interfaces import Transport
from remuda.kube.web import header_block

_HIGH_WATER = 128 * 1024
_MOST_HEAD = 64 * 1024
_MOST_BODY = 1024 * 1024  # of an answer that declines


class UpgradeResponse(NamedTuple):
    status: int
    headers: list[Header]
    body: bytes


class JoinedConnection(asyncio.Protocol):
    """One of two joined connections. `ended` is called once, with the number of bytes sent to it."""

    def __init__(self, ended: Callable[[int], None] = lambda sent: None) -> None:
        self.transport = cast(asyncio.Transport, None)
        self.other: JoinedConnection | None = None
        self._sent = 0
        self._ended = ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_HIGH_WATER)

    def send(self, data: bytes) -> None:
        self._sent += len(data)
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.send(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def eof_received(self) -> bool:
        self._end_other(None)
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._end_other(error)
        self.other = None
        ended, self._ended = self._ended, lambda sent: None
        ended(self._sent)

    def _end_other(self, error: Exception | None) -> None:
        if self.other is None or self.other.transport.is_closing():
            return
        if error is None:
            self.other.transport.close()  # written data is still sent
        else:
            self.other.transport.abort()  # a truncated stream must not look complete


class FarEnd(JoinedConnection):
    """Connection to the cluster, which first reads the response to the upgrade request."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: asyncio.Future[UpgradeResponse] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[Header] = []
        self._body = bytearray()
        self._size = 0
        self._head_complete = False
        self._early = b""  # what followed the head of an agreement

    def join(self, near: JoinedConnection) -> None:
        """Join with the caller's connection, and copy bytes from now on."""
        self.other, near.other = near, self
        # Resume before the early data is sent: sending may pause this end again, and that must stay.
        self.transport.resume_reading()
        if self._early:
            near.send(self._early)  # which may have this end pause again
            self._early = b""
        if self.transport.is_closing():
            near.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.answered.done():
            if self.other is not None:
                super().data_received(data)
            else:
                self._early += data
            return
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._early = data[upgrade.args[0] :]
            self.transport.pause_reading()  # until a reader takes the data
            self._resolve()
        except httptools.HttpParserError as error:
            self._fail(f"the response is not HTTP: {error}")
        if self._size > _MOST_BODY or (self._size > _MOST_HEAD and not self._head_complete):
            self._fail("the response is too long")

    def eof_received(self) -> bool:
        if not self.answered.done() and self._head_complete:
            self._resolve()  # an answer that ends with its connection
        return super().eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the connection was lost: {error}" if error else "the cluster closed the connection")
        super().connection_lost(error)

    def _resolve(self) -> None:
        if not self.answered.done():
            self.answered.set_result(UpgradeResponse(self._parser.get_status_code(), self._headers, bytes(self._body)))

    def _fail(self, why: str) -> None:
        if not self.answered.done():
            self.answered.set_exception(ConnectionResetError(why))
            self.transport.abort()

    # The parser's side

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1"), value.decode("utf-8", "replace")))

    def on_headers_complete(self) -> None:
        self._head_complete = True

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() != 101:
            self._resolve()


async def ask(
    way: Transport, method: str, target: str, headers: Sequence[Header], protocol: str
) -> tuple[FarEnd, UpgradeResponse]:
    """Request an upgrade. The caller must close the transport if it does not join the ends. Raises OSError."""
    transport, far = await way.connect(FarEnd)
    lines = [
        ("Host", urlsplit(way.server).netloc),
        *way.proof,
        *headers,
        ("Connection", "Upgrade"),
        ("Upgrade", protocol),
    ]
    if method != "GET":
        lines.append(("Content-Length", "0"))
    try:
        transport.write(f"{method} {target} HTTP/1.1\r\n".encode("ascii") + header_block(lines) + b"\r\n")
        return far, await far.answered
    except BaseException:
        transport.abort()
        raise
