"""Connections to one server with one identity.

An idle connection is closed before the server closes it. TCP keepalives detect a peer that has vanished.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection

from remuda.kube.http.identity import ClientIdentity
from remuda.kube.leadership import ask_permit

CONNECT_SECONDS = 10.0
KEEP_SECONDS = 30.0  # shorter than the idle timeouts of servers and load balancers
# Also on an idle connection, a vanished peer is detected after a minute and a half.
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 90_000))


_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class _Request(aiohttp.ClientRequest):
    """Request that checks the permit again just before a write is sent.

    A process that has lost its permit writes nothing, however long the write has waited for a connection or in the
    queue.
    """

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        self._ask()
        return await super().send(conn)

    def _ask(self) -> None:
        if self.method not in _READS:
            ask_permit()

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> None:
        """Check once more: aiohttp sends the head and body from a separate task, which may run much later."""
        try:
            self._ask()
        except Exception as refusal:
            if conn.protocol is not None:
                conn.protocol.set_exception(refusal)  # for the task that waits for the answer
            return
        await super().write_bytes(writer, conn, content_length)


# Creates connections, given their TLS context; None: no TLS.
Connector = Callable[[ssl.SSLContext | None], aiohttp.BaseConnector]


def direct(context: ssl.SSLContext | None) -> aiohttp.BaseConnector:
    """Connect to the address of the URL."""
    return aiohttp.TCPConnector(
        ssl=context or True, limit=0, keepalive_timeout=KEEP_SECONDS, socket_factory=_new_socket
    )


class Link:
    """Connections of one identity. `users`: requests in progress; a replaced link is closed when there are none."""

    def __init__(self, identity: ClientIdentity, context: ssl.SSLContext | None, connector: Connector = direct) -> None:
        self._proof = _proof(identity)
        self.users = 0
        self.session = aiohttp.ClientSession(
            connector=connector(context),
            request_class=_Request,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
        )

    def serves(self, identity: ClientIdentity) -> bool:
        return _proof(identity) == self._proof


def _proof(identity: ClientIdentity) -> tuple[bytes, bytes, bytes]:
    # Without the Authorization header, which is sent with each request: a new token needs no new connections.
    return identity.certificate_pem, identity.key_pem, identity.ca_pem


def _new_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        option = getattr(socket, name, None)  # not on every system
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
