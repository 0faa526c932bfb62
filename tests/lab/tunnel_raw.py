"""An end of a tunnel that says exactly what a test wants to have said, be it allowed or not.

Framing and messages are written out here once more, independently of the code under test, and judged by the real Go
ends: a mistake shared by both our ends would otherwise look like agreement.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from tests.lab.limits import LIMIT_SECONDS
from tests.lab.tunnel_services import address_of

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
DATA, CONNECT, ERROR, ADD, REMOVE, PAUSE, RESUME, SYNC = range(1, 9)
KINDS = ("", "data", "connect", "error", "add", "remove", "pause", "resume", "sync")
_DEADLINE = 15_000
_NOBODYS = 1 << 50


class Said(NamedTuple):
    """A message of the other end."""

    kind: str
    stream: int
    payload: bytes


class Ended(Exception):
    """The other end has closed the connection."""


def varint(value: int) -> bytes:
    rest, found = (value << 1) ^ (value >> 63), b""
    while rest > 127:
        found += bytes([rest % 128 + 128])
        rest //= 128
    return found + bytes([rest])


def read_varint(data: bytes) -> tuple[int, bytes]:
    value, shift = 0, 0
    for at, byte in enumerate(data):
        value += (byte % 128) << shift
        shift += 7
        if byte < 128:
            return (value // 2 if value % 2 == 0 else -(value // 2) - 1), data[at + 1 :]
    raise AssertionError(f"no varint: {data[:20]!r}")


def message(kind: int, stream: int, payload: bytes = b"", *, number: int = 1) -> bytes:
    deadline = varint(_DEADLINE) if kind in (DATA, CONNECT) else b""
    return varint(number) + varint(stream) + varint(kind) + deadline + payload


def sync(*streams: int) -> bytes:
    return message(SYNC, 0, b"".join(struct.pack("<q", stream) for stream in sorted(streams)))


def understood(data: bytes) -> Said:
    _, rest = read_varint(data)
    stream, rest = read_varint(rest)
    kind, rest = read_varint(rest)
    if kind in (DATA, CONNECT):
        deadline, rest = read_varint(rest)
        assert deadline == _DEADLINE, f"an old end would not understand a deadline of {deadline}"
    return Said(KINDS[kind], stream, rest)


class RawEnd:
    """One WebSocket. Pings are answered, and seen in `pings`, unless `deaf`; nothing else happens by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, masks: bool) -> None:
        self.pings = self.pongs = 0
        self.deaf = False
        self.headers: dict[str, str] = {}
        self._asked = 0
        self._reader, self._writer, self._masks = reader, writer, masks

    def frame(self, opcode: int, payload: bytes, *, final: bool = True) -> bytes:
        size, masked = len(payload), 128 if self._masks else 0
        head = bytes([opcode + (128 if final else 0)])
        if size < 126:
            head += bytes([size + masked])
        elif size < 65536:
            head += struct.pack(">BH", 126 + masked, size)
        else:
            head += struct.pack(">BQ", 127 + masked, size)
        if not self._masks:
            return head + payload
        key = os.urandom(4)
        stretched = (key * (size // 4 + 1))[:size]
        mixed = int.from_bytes(payload, "big") ^ int.from_bytes(stretched, "big")
        return head + key + mixed.to_bytes(size, "big")

    async def send(self, *messages: bytes) -> None:
        await self.send_raw(*(self.frame(BINARY, one) for one in messages))

    async def send_raw(self, *frames: bytes) -> None:
        self._writer.write(b"".join(frames))
        with suppress(OSError):
            await self._writer.drain()

    async def next_frame(self) -> tuple[int, bool, bytes]:
        try:
            first, second = await self._reader.readexactly(2)
            size = second % 128
            if size == 126:
                (size,) = struct.unpack(">H", await self._reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", await self._reader.readexactly(8))
            assert (second > 127) is not self._masks, "a client masks, a server does not"
            key = await self._reader.readexactly(4) if second > 127 else b""
            payload = await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Ended from error
        if key:
            stretched = (key * (size // 4 + 1))[:size]
            payload = (int.from_bytes(payload, "big") ^ int.from_bytes(stretched, "big")).to_bytes(size, "big")
        return first % 16, first > 127, payload

    async def heard_something(self) -> bool:
        """Anything at all, not looked at; False when the other end has closed the connection."""
        return bool(await self._reader.read(1 << 16))

    async def hear(self) -> Said:
        """The next message, whole. Pings alone are nothing to wait for."""
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self._hear()

    async def _hear(self) -> Said:
        pieces = b""
        while True:
            opcode, final, payload = await self.next_frame()
            if opcode == PING:
                self.pings += 1
                if not self.deaf:
                    await self.send_raw(self.frame(PONG, b""))  # empty, whatever was asked: as Go ends do
            elif opcode == PONG:
                self.pongs += 1
            elif opcode == CLOSE:
                raise Ended
            else:
                assert opcode in (0, BINARY), f"nobody sends frames of opcode {opcode}"
                pieces += payload
                if final:
                    return understood(pieces)

    async def hear_of(self, kind: str) -> Said:
        """The next message of that kind; others before it are passed over."""
        while True:
            said = await self.hear()
            if said.kind == kind:
                return said

    async def all_until(self, kind: str, stream: int) -> list[Said]:
        heard = []
        while not heard or (heard[-1].kind, heard[-1].stream) != (kind, stream):
            heard.append(await self.hear())
        return heard

    async def gone(self) -> list[Said]:
        """What was said before the other end closed the connection."""
        heard = []
        with suppress(Ended):
            while True:
                heard.append(await self.hear())
        return heard

    async def asked(self) -> list[Said]:
        """What was said before the other end had heard all it was told: a word about a stream there never was wants an
        answer, and answers come in order."""
        self._asked += 1
        number = _NOBODYS - self._asked
        await self.send(message(DATA, number, b"?"))
        heard = await self.all_until("error", number)
        assert b"not found" in heard[-1].payload
        return heard[:-1]

    async def for_a_while(self) -> list[Said]:
        """What was said by itself while the other end could have said more."""
        heard = []
        for _ in range(20):
            heard += await self.asked()
            await asyncio.sleep(0.02)
        return heard

    def stop_listening(self) -> None:
        """Nothing is read any more, and the kernel takes little for it."""
        cast(asyncio.Transport, self._writer.transport).pause_reading()
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def close(self) -> None:
        self._writer.transport.abort()


async def _head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LIMIT_SECONDS)).decode()
    first, *lines = head.strip().split("\r\n")
    return first, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def answer_to(url: str, authority: Path, headers: Mapping[str, str]) -> tuple[int, str]:
    """Status and body of the answer to a handshake that is refused."""
    reader, writer = await _asked(url, authority, headers)
    try:
        first, said = await _head(reader)
        if "content-length" in said:
            body = await reader.readexactly(int(said["content-length"]))
        else:
            body = await asyncio.wait_for(reader.read(), LIMIT_SECONDS)
        return int(first.split()[1]), body.decode()
    finally:
        writer.transport.abort()


async def _asked(url: str, authority: Path, headers: Mapping[str, str]):
    to = urlsplit(url)
    context = ssl.create_default_context(cafile=str(authority))
    reader, writer = await asyncio.open_connection(to.hostname, to.port, ssl=context, limit=1 << 20)
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [f"GET {to.path} HTTP/1.1", f"Host: {to.netloc}", "Connection: Upgrade", "Upgrade: websocket"]
    lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    return reader, writer


@asynccontextmanager
async def raw_client(url: str, authority: Path, headers: Mapping[str, str]) -> AsyncIterator[RawEnd]:
    reader, writer = await _asked(url, authority, headers)
    first, said = await _head(reader)
    assert " 101 " in first, first
    end = RawEnd(reader, writer, masks=True)
    end.headers = said
    try:
        yield end
    finally:
        end.close()


class RawServer:
    """Takes sessions of a client and hands each to the test."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.url = ""
        self.refusal = b""  # sent instead of an upgrade, if there is one
        self.attempts = 0
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate, key)
        self._sessions: asyncio.Queue[RawEnd] = asyncio.Queue()
        self._ends: list[RawEnd] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[RawServer]:
        server = await asyncio.start_server(self._take, "127.0.0.1", 0, ssl=self._context, limit=1 << 20)
        self.url = f"wss://{address_of(server)}/v3/connect"
        try:
            yield self
        finally:
            for end in self._ends:
                end.close()
            server.close()

    async def session(self) -> RawEnd:
        return await asyncio.wait_for(self._sessions.get(), LIMIT_SECONDS)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.attempts += 1
        try:
            _, headers = await _head(reader)
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()
            return
        if self.refusal:
            writer.write(self.refusal)
            writer.close()
            return
        proof = hashlib.sha1(headers["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Accept: {base64.b64encode(proof).decode()}", "", ""]
        writer.write("\r\n".join(lines).encode())
        end = RawEnd(reader, writer, masks=False)
        end.headers = headers
        self._ends.append(end)
        self._sessions.put_nowait(end)
