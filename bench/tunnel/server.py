"""Our server's end, as a program with the same control as the peer's: tunnels on the front of an embedded API server.

    python -m bench.tunnel.server --data-dir DIR --listen 127.0.0.1:PORT

Prints one line of JSON (url, control, ca, kubeconfig) once it listens. Control, HTTP on loopback: `GET /sessions`, and
`POST /forward {"key", "network", "address"}`, which opens a port that leads there through the tunnel.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

from aiohttp import web

from remuda.access.tunnels import tunnel_handler
from remuda.app import apiserver, process
from remuda.tunnel.server import TunnelRequest, TunnelServer
from remuda.tunnel.session_table import DialError, Key, Sessions

_HIGH_WATER = 256 * 1024


class Side(asyncio.Protocol):
    """One of two connections that are joined: what comes in here goes out there."""

    def __init__(self) -> None:
        self.transport = cast(asyncio.Transport, None)
        self.other = cast("Side", None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Near(Side):
    """Whoever connected to a forwarded port."""

    def __init__(self, sessions: Sessions, key: str, network: str, address: str) -> None:
        super().__init__()
        self._sessions = sessions
        self._target = key, network, address
        self._task: asyncio.Task[None] | None = None
        self._early: list[bytes] = []  # uvloop reads on even if it was told to pause within `connection_made`

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._task = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        try:
            _, far = await self._sessions.dial(*self._target, Side)
        except DialError as error:
            print(error, file=sys.stderr)
            self.transport.abort()
            return
        far.other, self.other = self, far
        self.transport.resume_reading()
        for data in self._early:
            far.transport.write(data)  # which may have it pause again
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
            self.transport.pause_reading()
        else:
            self.other.transport.write(data)


async def serve(stop: asyncio.Event, data: Path, port: int) -> int:
    sessions = Sessions()

    async def authorize(asking: TunnelRequest) -> Key | None:
        cluster = asking.headers.get("x-tunnel-id", "")
        return Key(cluster, asking.headers.get("x-tunnel-node", "")) if cluster else None

    routes = {"/v3/connect": tunnel_handler(TunnelServer(authorize, sessions))}
    server = await apiserver.start(apiserver.ServerSettings(data_dir=data, port=port), routes=routes)
    control = await _control(sessions)
    authority = data / "bench-ca.pem"
    authority.write_bytes(server.pki.ca_certificate_pem)
    url = server.url.replace("https:", "wss:") + "/v3/connect"
    said = {"url": url, "control": control, "ca": str(authority), "kubeconfig": str(server.kubeconfig)}
    print(json.dumps(said), flush=True)
    await stop.wait()
    sessions.end_all("the server stops")
    await server.stop()
    return 0


async def _control(sessions: Sessions) -> str:
    async def forward(request: web.Request) -> web.Response:
        to: dict[str, Any] = await request.json()
        listener = await asyncio.get_running_loop().create_server(
            lambda: Near(sessions, to["key"], to["network"], to["address"]), "127.0.0.1", 0, backlog=1024
        )
        host, port = listener.sockets[0].getsockname()
        return web.json_response({"address": f"{host}:{port}"})

    async def known(_: web.Request) -> web.Response:
        return web.json_response({"sessions": sessions.clusters()})

    application = web.Application()
    application.router.add_post("/forward", forward)
    application.router.add_get("/sessions", known)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    return f"http://{host}:{port}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--listen", required=True)
    chosen = parser.parse_args()
    port = int(chosen.listen.rpartition(":")[2])
    return process.run("tunnel bench", lambda stop: serve(stop, chosen.data_dir, port))


if __name__ == "__main__":
    sys.exit(main())
