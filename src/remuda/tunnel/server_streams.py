"""Streams that clients open: the server dials their target, if its allow-list permits it, and joins both.

Normally a server dials through its clients and not the other way round, so the default list is empty.
"""

from __future__ import annotations

import asyncio
from typing import cast

from remuda.tunnel import protocol
from remuda.tunnel.allow import Allow, DialTarget
from remuda.tunnel.dialer import SECONDS, describe_error
from remuda.tunnel.protocol import Buffer
from remuda.tunnel.streams import Stream

# The event loop holds only weak references to tasks. Without this set a dial could be collected while it runs.
_tasks: set[asyncio.Task[None]] = set()


def answer(stream: Stream, allow: Allow) -> bool:
    """Dial the target of the stream if that is allowed; return whether it was."""
    try:
        target = allow.target(stream.network, stream.address)
    except ValueError as error:
        stream.fail(f"connect not allowed: {error}")
        return False
    if target is None:
        stream.fail("connect not allowed")
        return False
    task = asyncio.get_running_loop().create_task(_dial(stream, target))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return True


async def _dial(stream: Stream, target: DialTarget) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(SECONDS):
            if target.network == "unix":
                await loop.create_unix_connection(lambda: _DialledConnection(stream), target.host)
            else:
                await loop.create_connection(lambda: _DialledConnection(stream), target.host, target.port)
    except (OSError, ValueError) as error:
        stream.fail(f"dial {stream.network} {stream.address}: {describe_error(error)}")


class _DialledConnection(asyncio.Protocol):
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._transport = cast(asyncio.Transport, None)
        self._can_write = True

    # Calls of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # The session or the client may have ended the stream while the dial ran.
        if self._stream.is_gone:
            self._transport.abort()
            return
        self._stream.confirm()
        self._stream.consumer = self
        self._stream.flush()

    def data_received(self, data: bytes) -> None:
        if not self._stream.write(data):
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if error is None:
            self._stream.close()
        else:
            self._stream.fail(f"read: {describe_error(error)}")

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        self._stream.flush()

    # Calls of the stream

    def take(self, data: Buffer) -> int:
        if not self._can_write:
            return 0
        self._transport.write(bytes(data))
        return len(data)

    def room(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def opened(self) -> None:
        pass

    def ended(self, reason: str) -> None:
        if reason == protocol.END:
            self._transport.close()
        else:
            self._transport.abort()
