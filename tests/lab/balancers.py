"""Servers behind a balancer that say who they are, and who is reached through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import free_port


class Greeters:
    """One TCP server per address, all on one port, each saying its address before it echoes."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self.port = free_port()
        self._servers: dict[str, asyncio.Server] = {}

    async def start(self, address: str) -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                writer.write(f"{address}\n".encode())
                while data := await reader.read(65536):
                    writer.write(data)
                    await writer.drain()
                writer.write(b"bye")
            writer.close()

        self._servers[address] = await asyncio.start_server(greet, address, self.port)

    async def stop(self, address: str) -> None:
        self._servers.pop(address).close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Greeters]:
        for address in self.addresses:
            await self.start(address)
        try:
            yield self
        finally:
            for address in list(self._servers):
                await self.stop(address)


async def greeting(host: str, port: int) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
    """Who is reached, empty if nobody; and the connection."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        said = await asyncio.wait_for(reader.readline(), LIMIT_SECONDS)
    except OSError:
        said = b""
    return said.decode().strip(), reader, writer


async def reached(host: str, port: int, most: int, *, seconds: float = LIMIT_SECONDS) -> list[str]:
    """Everybody behind the balancer: as many connections are held as there may be servers, so each gets one of them;
    tried until `most` were reached, or for a while."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        held = [await greeting(host, port) for _ in range(most)] if most else [await greeting(host, port)]
        for _, _, writer in held:
            writer.transport.abort()
        found = sorted({who for who, _, _ in held} - {""})
        if len(found) == most or asyncio.get_running_loop().time() > deadline:
            return found
        await asyncio.sleep(0.1)
