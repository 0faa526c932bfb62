"""A tunnel server of ours on our HTTP stack, over TLS, in the test's own loop; clients of ours in threads."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from remuda.access.tunnels import tunnel_handler
from remuda.apiserver.http.listener import Listener
from remuda.tunnel.allow import NOTHING, Allow
from remuda.tunnel.client import ReconnectDelays, Status, TunnelClient, TunnelSettings
from remuda.tunnel.mux import Timing
from remuda.tunnel.server import AcceptRate, TunnelRequest, TunnelServer
from remuda.tunnel.session_table import Key, SessionEvent, Sessions
from remuda.tunnel.streams import StreamLimits
from tests.lab.certificates import Authority, write
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import free_port

WAIT = LIMIT_SECONDS
LIVELY = Timing(ping_every=0.2, heard_within=WAIT, sent_within=WAIT)
# Of the server. A session that is silent for 1.5 times `ping_every` counts as stalled and is dialled last: with LIVELY
# the order of dials would depend on the machine.
PATIENT = LIVELY._replace(ping_every=WAIT)
TOKEN = "sesame"


async def eventually(true: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT):
        while not true():
            await asyncio.sleep(0.01)


class TunnelHarness:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority("tunnels")
        self.events: list[SessionEvent] = []
        self.sessions = Sessions(self.events.append)
        self.port = free_port()  # it keeps its port when it is started again
        self._listener: Listener | None = None
        self._clients: list[tuple[TunnelClient, threading.Thread]] = []
        self._services: list[asyncio.Server] = []

    # The server

    async def serve(
        self,
        *,
        timing: Timing = PATIENT,
        limits: StreamLimits | None = None,
        allow: Allow = NOTHING,
        rate: AcceptRate | None = None,
        authority: Authority | None = None,
    ) -> None:
        """On the port it had before, if it had one."""
        server = TunnelServer(
            self._authorize, self.sessions, timing=timing, limits=limits or StreamLimits(), allow=allow, rate=rate
        )
        certificate, key = (authority or self.authority).server("127.0.0.1")
        files = write(self.folder, certificate=certificate, key=key)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(files["certificate"], files["key"])
        self._listener = Listener(tunnel_handler(server))
        await self._listener.start("127.0.0.1", self.port, tls)

    async def stop_serving(self) -> None:
        if self._listener is not None:
            await self._listener.stop(1.0)
            self._listener = None

    async def _authorize(self, asking: TunnelRequest) -> Key | None:
        if asking.headers.get("authorization") != f"Bearer {TOKEN}":
            return None
        node = asking.headers.get("x-node", "")
        if node == "bad":
            raise ValueError("no such node")
        return Key("corral", node)

    @property
    def url(self) -> str:
        return f"wss://127.0.0.1:{self.port}/v3/connect"

    # Clients

    def settings(
        self, node: str = "roan", *, token: str = TOKEN, allow: tuple[str, ...] = ("tcp/127.0.0.1:*",)
    ) -> TunnelSettings:
        return TunnelSettings(
            urls=(self.url,),
            authorities=self.authority.pem.decode(),
            headers=(("Authorization", f"Bearer {token}"), ("X-Node", node)),
            allow=Allow(allow),
            timing=LIVELY,
            waits=ReconnectDelays(first=0.05, longest=0.2, attempt=WAIT),
        )

    def start(self, settings: TunnelSettings | Callable[[], TunnelSettings]) -> tuple[TunnelClient, list[Status]]:
        told: list[Status] = []
        client = TunnelClient(settings if callable(settings) else lambda: settings, told.append)
        thread = threading.Thread(target=client.run, daemon=True)
        thread.start()
        self._clients.append((client, thread))
        return client, told

    async def client(self, node: str = "roan", **given: object) -> TunnelClient:
        """Once it is connected."""
        client, _ = self.start(self.settings(node, **given))
        await eventually(lambda: any(session.key.node == node for session in self.sessions.of("corral")))
        return client

    async def stop(self, client: TunnelClient) -> None:
        thread = next(thread for each, thread in self._clients if each is client)
        client.stop()
        await asyncio.to_thread(thread.join, WAIT)
        assert not thread.is_alive()

    async def open(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await self.sessions.open("corral", "tcp", address, seconds=WAIT)

    # What there is behind a client

    async def service(self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]) -> str:
        made = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._services.append(made)
        return f"127.0.0.1:{made.sockets[0].getsockname()[1]}"

    async def end(self) -> None:
        for client, _ in self._clients:
            await self.stop(client)
        await self.stop_serving()
        for service in self._services:
            service.close()


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[TunnelHarness]:
    made = TunnelHarness(tmp_path)
    await made.serve()
    yield made
    await made.end()
