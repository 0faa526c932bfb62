"""TCP load balancer in front of the servers of one control plane: a separate program, standard library only.

    python balancer.py FOLDER

`balancer.json` in the folder has the listen addresses and the backends; the program reloads it when it changes. It
reports in `status.json` whether it listens, which backends answer, and how many connections each has. It holds `lock`
while it runs, so two never serve one folder, and clients check the lock to see whether it runs.

A new connection goes to the healthy backend with the fewest connections; if that one does not answer, to the next,
before a byte was read. A backend is healthy if a connection to it succeeds; that is checked every few seconds. A
removed backend gets no new connections, and its open ones may end by themselves for a while. Keep-alives detect peers
that vanish.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import signal
import socket
import sys
from typing import Any

CONFIG, STATUS, LOCK = "balancer.json", "status.json", "lock"

_LOOK_SECONDS = 0.5  # between two looks at the file, and two reports
_CONNECT_SECONDS = 3.0
_HEALTHY_SECONDS, _UNHEALTHY_SECONDS = 5.0, 1.0  # between two looks at a backend
_DRAIN_SECONDS = 30.0
_MOST_CONNECTIONS = 4096
_CHUNK = 64 * 1024

Place = tuple[str, int]  # a backend's address and port


class Links:
    """The connections to one place, each with the transports that end it."""

    def __init__(self) -> None:
        self.open: set[tuple[asyncio.BaseTransport, ...]] = set()

    def abort(self) -> None:
        for link in list(self.open):
            for transport in link:
                transport.abort()  # type: ignore[attr-defined]


class Balancer:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._stamp: tuple[int, int, int] = (0, 0, 0)
        self._revision = ""
        self._config: dict[str, Any] = {"address": "", "ports": [], "backends": []}
        self._servers: dict[int, asyncio.base_events.Server] = {}
        self._links: dict[Place, Links] = {}
        self._healthy: dict[Place, bool] = {}
        self._checks: dict[Place, asyncio.Task[None]] = {}
        self._drains: dict[str, asyncio.TimerHandle] = {}
        self._reported = b""
        self._connections = 0

    async def run(self) -> None:
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        while not stopping.is_set():
            error = ""
            try:
                await self._follow()
            except (OSError, ValueError, KeyError, TypeError) as problem:
                error = f"{type(problem).__name__}: {problem}" if not isinstance(problem, OSError) else _words(problem)
            self._report(error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _LOOK_SECONDS)
        for server in self._servers.values():
            server.close()
        for links in self._links.values():
            links.abort()

    # ---- what it is told, and what it tells --------------------------------------------------------------------------

    async def _follow(self) -> None:
        path = os.path.join(self._folder, CONFIG)
        looks = os.stat(path)
        stamp = (looks.st_mtime_ns, looks.st_ino, looks.st_size)
        if stamp == self._stamp:
            return
        content = _read(path)
        await self._take(json.loads(content))
        # Only now: a configuration that failed is tried again, and is not reported as the one that is served.
        self._stamp, self._revision = stamp, revision(content)

    async def _take(self, config: dict[str, Any]) -> None:
        address, ports, backends = str(config["address"]), list(map(int, config["ports"])), list(config["backends"])
        if address != self._config["address"]:
            await self._close(list(self._servers))
        for port in ports:
            if port not in self._servers:
                self._servers[port] = await asyncio.start_server(self._accept(port), address, port)
        self._config = {"address": address, "ports": ports, "backends": backends}
        await self._close([port for port in self._servers if port not in ports])
        wanted = {(backend, port) for backend in backends for port in ports}
        for place in wanted - set(self._checks):
            self._checks[place] = asyncio.ensure_future(self._check(place))
        for place in set(self._checks) - wanted:
            self._checks.pop(place).cancel()
            self._healthy.pop(place, None)
        self._drain(backends, float(config.get("drainSeconds", _DRAIN_SECONDS)))

    async def _close(self, ports: list[int]) -> None:
        for port in ports:
            server = self._servers.pop(port)
            server.close()

    def _drain(self, backends: list[str], seconds: float) -> None:
        """Abort connections to removed backends after so many seconds; until then they may end by themselves."""
        for backend in [backend for backend in self._drains if backend in backends]:
            self._drains.pop(backend).cancel()
        for backend in {place[0] for place, links in self._links.items() if links.open} - set(backends):
            if backend not in self._drains:
                self._drains[backend] = asyncio.get_running_loop().call_later(seconds, self._cut, backend)

    def _cut(self, backend: str) -> None:
        self._drains.pop(backend, None)
        for place, links in self._links.items():
            if place[0] == backend:
                links.abort()

    def _report(self, error: str) -> None:
        """Write the status file if it has changed."""
        places = sorted(set(self._checks) | {place for place, links in self._links.items() if links.open})
        status = {
            "pid": os.getpid(),
            "revision": self._revision,
            "listening": sorted(self._servers),
            "error": error,
            "backends": [
                {
                    "address": address,
                    "port": port,
                    "healthy": self._healthy.get((address, port), False),
                    "connections": len(self._links[address, port].open) if (address, port) in self._links else 0,
                }
                for address, port in places
            ],
        }
        content = json.dumps(status).encode()
        if content == self._reported:
            return
        part = os.path.join(self._folder, f".{STATUS}.part")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(content)
            os.replace(part, os.path.join(self._folder, STATUS))
        except OSError:
            return  # a full disk does not end a balancer
        self._reported = content

    # ---- health ------------------------------------------------------------------------------------------------------

    async def _check(self, place: Place) -> None:
        while True:
            try:
                _, writer = await asyncio.wait_for(asyncio.open_connection(*place), _CONNECT_SECONDS)
                writer.close()
                self._healthy[place] = True
            except (OSError, TimeoutError):
                self._healthy[place] = False
            await asyncio.sleep(_HEALTHY_SECONDS if self._healthy[place] else _UNHEALTHY_SECONDS)

    def _candidates(self, port: int) -> list[Place]:
        """Return the backends in order of preference; those that failed their last check come last."""
        places = [(backend, port) for backend in self._config["backends"]]
        return sorted(places, key=lambda place: (not self._healthy.get(place, False), len(self._of(place).open)))

    def _of(self, place: Place) -> Links:
        return self._links.setdefault(place, Links())

    # ---- connections -------------------------------------------------------------------------------------------------

    def _accept(self, port: int) -> Any:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._connections += 1
            try:
                if self._connections <= _MOST_CONNECTIONS:
                    await self._serve(port, reader, writer)
            except OSError:
                pass  # one side is gone, and so is the other now
            finally:
                self._connections -= 1
                writer.transport.abort()

        return serve

    async def _serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for place in self._candidates(port):
            links = self._of(place)
            try:
                inner = await asyncio.wait_for(asyncio.open_connection(*place), _CONNECT_SECONDS)
            except (OSError, TimeoutError):
                self._healthy[place] = False
                continue
            link = (writer.transport, inner[1].transport)
            links.open.add(link)
            try:
                await _relay((reader, writer), inner)
            finally:
                links.open.discard(link)
                inner[1].transport.abort()
                if not links.open and place not in self._checks:
                    self._links.pop(place, None)
            return


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _relay(outer: Stream, inner: Stream) -> None:
    """Relay until both directions have ended; an error in one direction ends the other."""
    for _, writer in (outer, inner):
        _keep_alive(writer.get_extra_info("socket"))
    pumps = [
        asyncio.ensure_future(_pump(outer[0], inner[1])),
        asyncio.ensure_future(_pump(inner[0], outer[1])),
    ]
    try:
        await asyncio.gather(*pumps)
    finally:
        for pump in pumps:
            pump.cancel()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        data = await reader.read(_CHUNK)
        if not data:
            break
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _keep_alive(link: socket.socket | None) -> None:
    if link is None:
        return
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60000)):
        if hasattr(socket, name):
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def revision(config: bytes) -> str:
    return hashlib.sha256(config).hexdigest()[:16]


def _words(error: OSError) -> str:
    return error.strerror or str(error)


def main(folder: str) -> None:
    lock = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # there is one already
    asyncio.run(Balancer(folder).run())


if __name__ == "__main__":
    main(sys.argv[1])
