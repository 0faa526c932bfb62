"""A node's way to the API: one server of several at a time, the next one when it does not answer.

Each is for one task: closing a connection leaves whoever else reads from it waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from remuda.kube.http import HttpClient
from remuda.kube.kubeconfig import Access

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 10.0


class ApiAccess:
    """`servers` are asked for anew each time one has failed."""

    def __init__(self, servers: Callable[[], Sequence[str]], ca: bytes, certificate: Path, key: Path) -> None:
        self._servers = servers
        self._ca = ca
        self._certificate = certificate
        self._key = key
        self._client: HttpClient | None = None
        self._server = ""

    def client(self) -> HttpClient | None:
        """None while there is no server."""
        if self._client is None:
            servers = list(self._servers())
            if not servers:
                return None
            after = servers.index(self._server) + 1 if self._server in servers else 0
            self._server = servers[after % len(servers)]
            access = Access(
                server=self._server,
                origin="this node",
                ca=self._ca,
                client_certificate=self._certificate,
                client_key=self._key,
            )
            self._client = HttpClient(access, field_manager="nano", timeout_seconds=_TIMEOUT_SECONDS)
        return self._client

    async def failed(self, why: object) -> None:
        """The next question goes to another server, where there is one."""
        log.info("%s has failed: %s", self._server, why)
        await self.close()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
