"""Transport to one cluster: pooled connections for requests, and a separate connection for each upgrade."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from remuda.kube.errors import StatusError
from remuda.kube.http.link import CONNECT_SECONDS
from remuda.kube.kubeconfig import ClientConfig
from remuda.kube.objects import Key
from remuda.tunnel.session_table import Sessions

P = TypeVar("P", bound=asyncio.Protocol)

READS = frozenset({"GET", "HEAD", "OPTIONS"})

_HEAD = 64 * 1024
_READ_AHEAD = 128 * 1024  # of a response whose reader is slow
_NOTHING_ADDED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class ClusterTransport:
    """See `interfaces.Transport`. `made_of`: what it was built from, to detect that it is outdated; `explain` returns
    the error for an unreachable cluster; `on_timeout` is called when a direct connection attempt timed out."""

    def __init__(
        self,
        *,
        cluster: str,
        key: Key,
        through: str,
        access: ClientConfig,
        context: ssl.SSLContext,
        connector: aiohttp.BaseConnector,
        sessions: Sessions,
        made_of: tuple[str, ...],
        explain: Callable[[str, str], StatusError],
        on_timeout: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self.key = key
        self.server = access.server
        self.through = through
        bearer = (("Authorization", f"Bearer {access.token}"),)
        self.proof: tuple[tuple[str, str], ...] = bearer if access.token else ()
        self.made_of = made_of
        self._access = access
        self._context = context
        self._sessions = sessions
        self._explain = explain
        self._on_timeout = on_timeout
        self._users = 0
        self._close: Callable[[Coroutine[Any, Any, None]], object] | None = None  # set when it was replaced
        self._session = aiohttp.ClientSession(
            connector=connector,
            # All callers share this session: a cookie that the cluster sets for one must not be sent for another.
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            skip_auto_headers=_NOTHING_ADDED,
            auto_decompress=False,
            read_bufsize=_READ_AHEAD,
            max_line_size=_HEAD,
            max_field_size=_HEAD,
        )
        # aiohttp would also retry a PUT or a DELETE. This class decides what may be retried.
        self._session._retry_connection = False

    def __enter__(self) -> Self:
        self._users += 1
        return self

    def __exit__(self, *what: object) -> None:
        self._users -= 1
        self._close_if_unused()

    def retire(self, close: Callable[[Coroutine[Any, Any, None]], object], *, now: bool) -> None:
        """Retire the transport: nobody gets it any more; it closes when its last user releases it, or now."""
        self._close = close
        self._users = 0 if now else self._users
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._users <= 0 and self._close is not None:
            # Close only once: later users may still leave after `retire(now=True)`.
            close, self._close = self._close, None
            close(self._session.close())

    async def request(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes | None = None
    ) -> aiohttp.ClientResponse:
        try:
            return await self._request(method, target, headers, body)
        except aiohttp.ClientConnectorError:
            raise
        except aiohttp.ConnectionTimeoutError:
            if self.through == "direct":
                self._on_timeout()
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            if method not in READS:
                raise
            # The cluster closed a pooled connection just as it was reused: a read can be repeated safely.
            return await self._request(method, target, headers, body)

    async def _request(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes | None
    ) -> aiohttp.ClientResponse:
        # `encoded` and no redirects: the proxy has checked exactly this target, and the manager's credentials must not
        # go to a host that the cluster names.
        return await self._session.request(
            method,
            URL(self.server + target, encoded=True),
            data=body,
            headers=[*self.proof, *headers],
            allow_redirects=False,
            proxy=self._access.proxy_url or None,
            server_hostname=self._access.tls_server_name or None,
        )

    async def connect(self, make: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        parts = urlsplit(self.server)
        host, port = parts.hostname or "", parts.port or 443
        name = self._access.tls_server_name or host
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if self.through == "tunnel":
                    address = parts.netloc
                    return await self._sessions.dial(
                        self.cluster, "tcp", address, make, tls=self._context, server_name=name
                    )
                if self._access.proxy_url:
                    raise OSError("connections cannot be upgraded through the HTTP proxy of its kubeconfig")
                loop = asyncio.get_running_loop()
                return await loop.create_connection(make, host, port, ssl=self._context, server_hostname=name)
        except TimeoutError:
            if self.through == "direct":
                self._on_timeout()
            raise OSError(f"no connection within {CONNECT_SECONDS:g} s") from None

    def unreachable(self, why: str) -> StatusError:
        return self._explain(self.cluster, why)
