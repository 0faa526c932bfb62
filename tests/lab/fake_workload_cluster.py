"""An API server that is none: it takes requests over TLS from those who prove who they are, keeps the bytes of every
head exactly as they came, and answers as a test says."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from remuda.kube import kubeconfig
from tests.lab.certificates import Authority, write
from tests.lab.ports import free_port


class Seen(NamedTuple):
    line: str
    headers: list[tuple[str, str]]  # names in lower case
    body: bytes

    @property
    def method(self) -> str:
        return self.line.split(" ")[0]

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]

    def all(self, name: str) -> list[str]:
        return [value for found, value in self.headers if found == name]


Answer = Callable[[Seen, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def plainly(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await whole(writer, b'{"kind":"Fine"}')


async def whole(writer: asyncio.StreamWriter, body: bytes, status: str = "200 OK", *more: str) -> None:
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *more]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()


async def begin_chunks(writer: asyncio.StreamWriter, content_type: str = "application/json") -> None:
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {content_type}", "Transfer-Encoding: chunked"]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await writer.drain()


async def chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    """An empty one is the last."""
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
    await writer.drain()


class FakeWorkloadCluster:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = Authority("far")
        self.seen: list[Seen] = []
        self.connections = 0
        self.answer: Answer = plainly
        self.port = free_port()  # it keeps its port when it is started again
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        certificate, key = self.authority.server("127.0.0.1")
        files = write(self._folder, certificate=certificate, key=key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files["certificate"], files["key"])
        context.load_verify_locations(cadata=self.authority.pem.decode())
        context.verify_mode = ssl.CERT_REQUIRED
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=context)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def config(self, server: str = "", user: str = "admin") -> dict[str, Any]:
        """A kubeconfig of an administrator."""
        certificate, key = self.authority.client(user, "system:masters")
        return kubeconfig.build(
            server or f"https://{self.address}",
            ca_pem=self.authority.pem,
            client_certificate_pem=certificate,
            client_key_pem=key,
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *lines = head[:-4].split("\r\n")
                headers = [(name.lower(), value.strip()) for name, _, value in (one.partition(":") for one in lines)]
                length = int(dict(headers).get("content-length", 0))
                seen = Seen(line, headers, await reader.readexactly(length))
                self.seen.append(seen)
                await self.answer(seen, reader, writer)
        except (OSError, EOFError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
