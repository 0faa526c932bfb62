"""HTTP through a tunnel: an aiohttp connector whose connections are streams to one cluster.

    aiohttp.ClientSession(connector=TunnelConnector(sessions, "fleet-default/one", tls=context))

aiohttp does pooling, keep-alive and upgrades. The other end dials the URL's host and port, or the given address. The
certificate is verified for the host of the URL.
"""

from __future__ import annotations

import ssl
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from remuda.tunnel.session_table import DIAL_SECONDS, Sessions


class TunnelConnector(aiohttp.BaseConnector):
    allowed_protocol_schema_set = frozenset({"", "http", "https", "ws", "wss"})

    def __init__(
        self, sessions: Sessions, cluster: str, *, tls: ssl.SSLContext | None = None, address: str = "", **given: Any
    ) -> None:
        super().__init__(**given)
        self._sessions = sessions
        self._cluster = cluster
        self._tls = tls
        self._address = address

    async def _create_connection(
        self,
        req: Any,
        traces: Any,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # as aiohttp calls it
    ) -> ResponseHandler:
        secure = req.url.scheme in ("https", "wss")
        if secure and self._tls is None:
            raise aiohttp.InvalidURL(req.url, "this connector has no certificate authorities for https")
        host = f"[{req.url.host}]" if ":" in req.url.host else req.url.host
        try:
            _, handler = await self._sessions.dial(
                self._cluster,
                "tcp",
                self._address or f"{host}:{req.url.port}",
                self._factory,
                tls=self._tls if secure else None,
                server_name=req.server_hostname or req.url.host,
                seconds=timeout.sock_connect or timeout.connect or DIAL_SECONDS,
            )
        except ssl.SSLCertVerificationError as error:
            raise aiohttp.ClientConnectorCertificateError(req.connection_key, error) from error
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        return handler
