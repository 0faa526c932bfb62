"""The listening socket and all its connections: accepts, checks deadlines, and stops without cutting off clients.

After many connections have closed, the listener returns free memory to the system: glibc keeps memory that was freed
between blocks in use, tens of megabytes after a thousand connections. Other C libraries return it themselves or have no
such call; there this does nothing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from email.utils import formatdate
from functools import cache
from typing import Any

from remuda.apiserver.http.connection import Connection
from remuda.apiserver.http.limits import HttpLimits
from remuda.kube.web import Handler, Request, Response, text

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 1.0
_LOOK_AGAIN_SECONDS = 0.02
_FAREWELL_SECONDS = 0.2
_TRIM_AFTER = 512  # closed connections
_MANY = 32  # number of connections from which their memory matters
_M_MMAP_THRESHOLD = -3  # glibc's constant
_LARGE = 192 * 1024


class Listener:
    """Serves `handler`. `failed` answers for a handler that raised, `timed_out` for one that took too long."""

    def __init__(self, handler: Handler, limits: HttpLimits | None = None) -> None:
        self.handler = handler
        self.limits = limits or HttpLimits()
        self.draining = False
        self.port = 0
        self.loop: asyncio.AbstractEventLoop
        self.connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._date = b""
        self._date_until = 0.0
        self._emptied: asyncio.Event | None = None
        self._made = 0  # connections since memory was last returned

    async def start(
        self, host: str, port: int, tls: ssl.SSLContext | None, sweep_every: float = _SWEEP_SECONDS
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._server = await self.loop.create_server(
            self._new_connection,
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=self.limits.handshake_timeout if tls else None,
            backlog=1024,
        )
        for listening in self._server.sockets:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # accepted sockets inherit it
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._schedule_sweep(sweep_every)

    async def stop(self, grace: float) -> None:
        """Stop accepting, end streams and wait up to `grace` seconds for requests in progress.

        A client that has its whole answer may also close the connection, but the wait for that is short: a client that
        reads nothing never does.
        """
        self.draining = True
        if self._server is not None:
            self._server.close()
        self._emptied = asyncio.Event()
        for connection in list(self.connections):
            connection.drain()
        until = self.loop.time() + grace
        while busy := sum(not connection.said_all for connection in self.connections):
            if self.loop.time() >= until:
                log.warning("%d connections did not end within %s s; dropping them", busy, grace)
                break
            await self._wait_emptied(_LOOK_AGAIN_SECONDS)
        await self._wait_emptied(_FAREWELL_SECONDS)
        for connection in list(self.connections):
            connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()
        await asyncio.sleep(0)  # lets aborted transports report their end

    async def _wait_emptied(self, seconds: float) -> None:
        if self.connections and self._emptied is not None:
            try:
                await asyncio.wait_for(self._emptied.wait(), seconds)
            except TimeoutError:
                pass

    def _new_connection(self) -> Connection:
        self._made += 1
        return Connection(self)

    # -- interface for connections -------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        if self.draining or len(self.connections) >= self.limits.connections:
            return False
        self.connections.add(connection)
        if len(self.connections) == _MANY:
            set_large_blocks_apart()
        return True

    @property
    def idle_timeout(self) -> float:
        crowded = len(self.connections) >= self.limits.crowd
        return self.limits.crowded_idle_timeout if crowded else self.limits.idle_timeout

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if self._emptied is not None and not self.connections:
            self._emptied.set()

    def date_header(self) -> bytes:
        now = time.time()
        if now >= self._date_until:
            self._date = formatdate(int(now), usegmt=True).encode()
            self._date_until = int(now) + 1
        return self._date

    def failed(self, request: Request, error: BaseException) -> Response:
        log.error("%s %s failed", request.method, request.path, exc_info=error)
        return text(500, "Internal Server Error")

    def timed_out(self, request: Request) -> Response:
        return text(504, "Gateway Timeout")

    # -- deadlines -----------------------------------------------------------------------------------------------

    def _schedule_sweep(self, every: float) -> None:
        self._sweeper = self.loop.call_later(every, self._sweep, every)

    def _sweep(self, every: float) -> None:
        now = self.loop.time()
        late = [c for c in self.connections if c.deadline <= now or c.write_deadline <= now]
        for connection in late:
            connection.expire(now)
        if self._made - len(self.connections) >= _TRIM_AFTER:
            self._made = len(self.connections)
            trim_memory()
        self._schedule_sweep(every)


@cache
def _glibc(function: str) -> Any:
    import ctypes  # imported only when needed, which a server with few clients never is

    return getattr(ctypes.CDLL(None), function, None)


def trim_memory() -> None:
    if (trimmer := _glibc("malloc_trim")) is not None:
        trimmer(0)


def set_large_blocks_apart() -> None:
    """Make malloc map large blocks separately from now on. Each TLS connection of uvloop has a 256 KB buffer and uses a
    few KB of it. glibc raises its threshold for large blocks over time, would cut the buffer out of used heap memory,
    and all of it would count as resident.
    """
    if (set_option := _glibc("mallopt")) is not None:
        set_option(_M_MMAP_THRESHOLD, _LARGE)
