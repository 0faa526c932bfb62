"""A server that does to its clients whatever a test wants, byte by byte."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Self

Act = Callable[["Conversation"], Awaitable[None]]


class Conversation:
    """One request, and the writing end of its connection."""

    def __init__(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *headers = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = line.split(" ")
        self.headers = [(name.lower(), value.strip()) for name, _, value in (h.partition(":") for h in headers if h)]
        self.body = b""
        self._reader = reader
        self.writer = writer

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    async def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        lines = [f"HTTP/1.1 {code} X", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode() + body)

    async def begin_stream(self) -> None:
        await self.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end_stream(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def say_nothing(self) -> None:
        """Until the client goes away."""
        await self._reader.read()

    def cut(self) -> None:
        self.writer.transport.abort()


class RawServer:
    """Does `acts`, one per request; the last one for all that follow."""

    def __init__(self, *acts: Act, tls: ssl.SSLContext | None = None) -> None:
        self._acts = list(acts)
        self._tls = tls
        self.seen: list[Conversation] = []
        self.connections = 0
        self.open = 0
        self.nobody = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        self.nobody.clear()
        try:
            while True:
                await self._serve_one(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            if not self.open:
                self.nobody.set()
            self._tasks.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        said = Conversation(head[:-4], reader, writer)
        said.body = await reader.readexactly(int(said.header("content-length") or 0))
        self.seen.append(said)
        act = self._acts.pop(0) if len(self._acts) > 1 else self._acts[0]
        await act(said)


def answering(code: int, body: bytes = b"", **headers: str) -> Act:
    return lambda said: said.answer(code, body, **headers)
