"""HTTPS through a tunnel as the manager speaks to clusters: aiohttp on streams, whoever is at the other end."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from remuda.access.tunnels import tunnel_handler
from remuda.apiserver.http.listener import Listener
from remuda.tunnel.connector import TunnelConnector
from remuda.tunnel.server import TunnelRequest, TunnelServer
from remuda.tunnel.session_table import Key, Sessions
from tests.lab.tunnel_ends import KINDS, TunnelEnds
from tests.lab.tunnel_services import WAIT, Services

_LARGE = b"0123456789abcdef" * (1 << 19)


@pytest_asyncio.fixture
async def sessions(ends: TunnelEnds) -> AsyncIterator[tuple[Sessions, str]]:
    """Those of a server in this process, and its URL."""

    async def authorize(asking: TunnelRequest) -> Key:
        return Key(asking.headers["x-tunnel-id"], asking.headers["x-tunnel-node"])

    made = Sessions()
    listener = Listener(tunnel_handler(TunnelServer(authorize, made)))
    await listener.start("127.0.0.1", 0, _identity(ends))
    yield made, f"wss://127.0.0.1:{listener.port}/v3/connect"
    made.end_all("the server stops")
    await listener.stop(1.0)


def _identity(ends: TunnelEnds) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(ends.files["certificate"], ends.files["key"])
    return context


@pytest_asyncio.fixture
async def service(ends: TunnelEnds) -> AsyncIterator[str]:
    async def large(_: web.Request) -> web.Response:
        return web.Response(body=_LARGE)

    async def digest(request: web.Request) -> web.Response:
        return web.Response(text=hashlib.sha256(await request.read()).hexdigest())

    application = web.Application(client_max_size=len(_LARGE) + 1)
    application.router.add_get("/large", large)
    application.router.add_post("/digest", digest)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=_identity(ends)).start()
    yield "https://{}:{}".format(*runner.addresses[0])
    await runner.cleanup()


@pytest.mark.parametrize("kind", KINDS)
async def test_https_requests_work_through_tunnel(
    kind: str, ends: TunnelEnds, services: Services, sessions: tuple[Sessions, str], service: str
) -> None:
    tunnels, url = sessions
    await ends.client(kind, url)
    async with asyncio.timeout(WAIT):
        while not tunnels.has("corral"):
            await asyncio.sleep(0.02)
    trust = ssl.create_default_context(cadata=ends.authority.pem.decode())
    connector = TunnelConnector(tunnels, "corral", tls=trust)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(WAIT)) as http:
        for _ in range(3):
            async with http.get(f"{service}/large") as answer:
                assert await answer.read() == _LARGE
            async with http.post(f"{service}/digest", data=_LARGE) as answer:
                assert await answer.text() == hashlib.sha256(_LARGE).hexdigest()
        with pytest.raises(aiohttp.ClientError):
            await http.get(f"https://{services.closed_port}/large")
        async with http.get(f"{service}/large") as answer:
            assert await answer.read() == _LARGE


@pytest.mark.parametrize("kind", KINDS)
async def test_untrusted_service_certificate_is_rejected(
    kind: str, ends: TunnelEnds, sessions: tuple[Sessions, str], service: str
) -> None:
    tunnels, url = sessions
    await ends.client(kind, url)
    async with asyncio.timeout(WAIT):
        while not tunnels.has("corral"):
            await asyncio.sleep(0.02)
    connector = TunnelConnector(tunnels, "corral", tls=ssl.create_default_context())
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(WAIT)) as http:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await http.get(f"{service}/large")
