"""What is dialled through tunnels in tests: services on loopback which say enough to judge the bytes by.

`Services` has one of each: an echo; a sink, which takes as many bytes as announced and answers with their digest; a
source, which sends as many bytes as it was asked for; and a blocked sink, which takes a connection and reads nothing of
it until it is unblocked. The protocol has no half-closed connections, so everything announces its length.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import closed_port

_PIECE = 64 * 1024
_LENGTH = struct.Struct(">Q")
WAIT = LIMIT_SECONDS

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Services:
    def __init__(self) -> None:
        self.echo = self.sink = self.source = self.blocked_sink = ""
        self.closed_port = ""
        self.open = 0  # connections now
        self.unblocked = asyncio.Event()  # set: blocked sinks read

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()

    async def _sink(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (missing,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        digest = hashlib.sha256()
        while missing:
            data = await reader.read(min(missing, _PIECE))
            if not data:
                return
            digest.update(data)
            missing -= len(data)
        writer.write(digest.digest())
        await writer.drain()

    async def _source(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        for piece in pieces(length):
            writer.write(piece)
            await writer.drain()

    async def _blocked_sink(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.unblocked.wait()
        await self._sink(reader, writer)

    def _counted(self, serve):
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.open += 1
            try:
                with suppress(OSError, asyncio.IncompleteReadError):
                    await serve(reader, writer)
            finally:
                self.open -= 1
                writer.close()

        return handle

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Services]:
        servers = []
        for name in ("echo", "sink", "source", "blocked_sink"):
            server = await asyncio.start_server(self._counted(getattr(self, f"_{name}")), "127.0.0.1", 0)
            if name == "blocked_sink":  # what the kernel takes for it is not read by it
                server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
            servers.append(server)
            setattr(self, name, address_of(server))
        with closed_port() as port:
            self.closed_port = f"127.0.0.1:{port}"
            try:
                yield self
            finally:
                self.unblocked.set()
                for server in servers:
                    server.close()

    @asynccontextmanager
    async def echo_at(self, path: Path) -> AsyncIterator[str]:
        """An echo at a socket of the file system."""
        server = await asyncio.start_unix_server(self._counted(self._echo), path)
        try:
            yield str(path)
        finally:
            server.close()


def address_of(server: asyncio.Server) -> str:
    host, port = server.sockets[0].getsockname()[:2]
    return f"{host}:{port}"


def pieces(length: int):
    """That many bytes, of which no two pieces are the same."""
    number = 0
    while length > 0:
        piece = (struct.pack(">Q", number) * (_PIECE // 8))[: min(_PIECE, length)]
        yield piece
        number += 1
        length -= len(piece)


def digest_of(length: int) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces(length):
        digest.update(piece)
    return digest.digest()


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Stream]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def echoed(address: str, text: bytes = b"is anybody there?") -> bool:
    """Whether all of it came back."""
    with suppress(OSError, asyncio.IncompleteReadError):
        async with connected(address) as (reader, writer):
            writer.write(text)
            return await asyncio.wait_for(reader.readexactly(len(text)), WAIT) == text
    return False


async def answers(address: str, seconds: float = WAIT) -> None:
    """Once an echo is reached, however many attempts that takes."""
    async with greeted(address, seconds):
        pass


@asynccontextmanager
async def greeted(address: str, seconds: float = WAIT) -> AsyncIterator[Stream]:
    """A connection to an echo that has answered, however many attempts that takes."""
    deadline = asyncio.get_running_loop().time() + seconds
    patience = 2.0  # an attempt may hang; on a slow machine one that does not may take long
    while True:
        async with AsyncExitStack() as exits:
            try:
                async with asyncio.timeout(patience):
                    reader, writer = await exits.enter_async_context(connected(address))
                    writer.write(b"hello")
                    answered = await reader.readexactly(5) == b"hello"
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                answered = False
            if answered:
                yield reader, writer
                return
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"no echo through {address} in {seconds:g} s")
        patience *= 2
        await asyncio.sleep(0.05)


async def ended(stream: Stream, seconds: float = WAIT) -> bytes:
    """What still came before the connection ended, in whichever way."""
    rest = b""
    async with asyncio.timeout(seconds):
        with suppress(OSError):
            while data := await stream[0].read(_PIECE):
                rest += data
    return rest


async def sink_digest(address: str, length: int) -> bytes:
    """Send bytes to a sink, and return the digest that it answers."""
    async with asyncio.timeout(WAIT), connected(address) as (reader, writer):
        await send_to_sink(writer, length)
        return await reader.readexactly(hashlib.sha256().digest_size)


async def send_to_sink(writer: asyncio.StreamWriter, length: int) -> None:
    writer.write(_LENGTH.pack(length))
    for piece in pieces(length):
        writer.write(piece)
        await writer.drain()


async def source_digest(address: str, length: int) -> bytes:
    """Return the digest of the bytes that a source has sent."""
    digest, received = hashlib.sha256(), 0
    async with asyncio.timeout(WAIT), connected(address) as (reader, writer):
        writer.write(_LENGTH.pack(length))
        while data := await reader.read(_PIECE):
            digest.update(data)
            received += len(data)
    return digest.digest() if received == length else b"only %d bytes came" % received


def length_header(length: int) -> bytes:
    """Return the request for a source, which is also the announcement for a sink."""
    return _LENGTH.pack(length)
