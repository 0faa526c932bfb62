"""Our server's end of tunnels as a program of its own, told what to do over HTTP on loopback like the Go one
(interop/remotedialer/control.go):

    python -m tests.lab.tunnel_server --certificate FILE --key FILE [--listen ADDRESS] [--allow RULE]...
                                      [--ping SECONDS] [--deadline SECONDS] [--rate PER_SECOND]

Beyond the Go one's, `GET /sessions` tells keys with their nodes, and `GET /ends` why the last session of each ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
from contextlib import suppress

from aiohttp import web

from remuda.access.tunnels import tunnel_handler
from remuda.apiserver.http.listener import Listener
from remuda.app import process
from remuda.app.log_setup import LogSettings
from remuda.tunnel.allow import Allow
from remuda.tunnel.mux import Timing
from remuda.tunnel.server import AcceptRate, TunnelRequest, TunnelServer
from remuda.tunnel.session_table import Key, SessionEvent, Sessions

_PIECE = 64 * 1024


class Control:
    def __init__(self) -> None:
        self.sessions = Sessions(self._note_end)
        self._failures: list[str] = []
        self._ends: dict[str, str] = {}
        self._forwarding: list[asyncio.Server] = []

    def _note_end(self, event: SessionEvent) -> None:
        if not event.connected:
            self._ends[str(event.key)] = event.reason

    async def start(self) -> str:
        application = web.Application()
        application.router.add_get("/sessions", self._list)
        application.router.add_get("/failures", self._list_failures)
        application.router.add_get("/ends", self._list_ends)
        application.router.add_post("/forward", self._forward)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        return f"http://{host}:{port}"

    async def _list(self, _: web.Request) -> web.Response:
        clusters = self.sessions.clusters()
        nodes = [str(session.key) for cluster in clusters for session in self.sessions.of(cluster)]
        return web.json_response({"sessions": clusters, "nodes": nodes})

    async def _list_failures(self, _: web.Request) -> web.Response:
        return web.json_response({"failures": self._failures})

    async def _list_ends(self, _: web.Request) -> web.Response:
        return web.json_response({"ends": self._ends})

    async def _forward(self, request: web.Request) -> web.Response:
        to = await request.json()

        async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self._join(reader, writer, to)
            except (OSError, ValueError) as error:
                self._failures.append(str(error))
            finally:
                writer.close()

        listener = await asyncio.start_server(join, "127.0.0.1", 0, backlog=1024)
        self._forwarding.append(listener)
        host, port = listener.sockets[0].getsockname()
        return web.json_response({"address": f"{host}:{port}"})

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: dict[str, str]) -> None:
        """Until either side ends: the protocol has no half-closed connections."""
        far_reader, far_writer = await self.sessions.open(to["key"], to["network"], to["address"])
        there = asyncio.create_task(_pass_on(reader, far_writer))
        try:
            await _pass_on(far_reader, writer)
        finally:
            there.cancel()
            with suppress(OSError, asyncio.CancelledError):
                await there
            far_writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(stop: asyncio.Event, chosen: argparse.Namespace) -> int:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chosen.certificate, chosen.key)
    control = Control()
    tunnels = TunnelServer(
        _authorize,
        control.sessions,
        allow=Allow(chosen.allow),
        timing=Timing(
            ping_every=chosen.ping, heard_within=chosen.deadline, sent_within=chosen.deadline, linger=chosen.deadline
        ),
        rate=AcceptRate(chosen.rate, int(chosen.rate)),
    )
    listener = Listener(tunnel_handler(tunnels))
    host, _, port = chosen.listen.rpartition(":")
    await listener.start(host, int(port), context)
    said = {"url": f"wss://{host}:{listener.port}/v3/connect", "control": await control.start()}
    print(json.dumps(said), flush=True)
    await stop.wait()
    control.sessions.end_all("the server stops")
    await listener.stop(1.0)
    return 0


async def _authorize(asking: TunnelRequest) -> Key | None:
    cluster = asking.headers.get("x-tunnel-id", "")
    return Key(cluster, asking.headers.get("x-tunnel-node", "")) if cluster else None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--allow", action="append", default=[])
    parser.add_argument("--ping", type=float, default=Timing().ping_every)
    parser.add_argument("--deadline", type=float, default=Timing().heard_within)
    parser.add_argument("--rate", type=float, default=1000.0)
    chosen = parser.parse_args()
    return process.run("tunnel lab", lambda stop: serve(stop, chosen), LogSettings(level="debug"))


if __name__ == "__main__":
    sys.exit(main())
