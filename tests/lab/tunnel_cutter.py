"""A line between two ends of a tunnel which a test can cut: with a reset, as a balancer that is restarted does, or by
silence, as a firewall that forgot the connection does. It knows nothing of what it carries.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.lab.tunnel_services import address_of

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of no seconds


class Line:
    """`address` leads to the target. Each connection that was open at a cut or a silence keeps it; later ones work."""

    def __init__(self, target: str) -> None:
        self.address = ""
        self.accepted = 0
        self.closed = False  # nobody gets through any more
        self._target = target.rpartition(":")
        self._silent: set[asyncio.StreamWriter] = set()
        self._ends: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[Line]:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.address = address_of(server)
        try:
            yield self
        finally:
            self.cut()
            server.close()

    def cut(self) -> None:
        for end in tuple(self._ends):
            raw: socket.socket = end.get_extra_info("socket")
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            end.transport.abort()

    def silence(self) -> None:
        """From now on everything that is sent on what is now open is taken, and lost."""
        self._silent |= self._ends

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.closed:
            writer.transport.abort()
            return
        try:
            there, onward = await asyncio.open_connection(self._target[0], int(self._target[2]))
        except OSError:
            writer.transport.abort()
            return
        self._ends |= {writer, onward}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(reader, onward))
                both.create_task(self._pass_on(there, writer))
        finally:
            self._ends -= {writer, onward}
            self._silent -= {writer, onward}

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if writer not in self._silent:
                    writer.write(data)
                    await writer.drain()
        if writer not in self._silent:
            writer.close()
