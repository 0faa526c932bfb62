"""The whole product in one process: the embedded engine, and the controllers on it."""

from __future__ import annotations

import asyncio
import os
import time

import msgspec

from remuda.apiserver.server import ApiServer
from remuda.app import apiserver, controllers, process
from remuda.app.apiserver import Settings as ServerSettings
from remuda.capi import admission
from remuda.runtime.manager import Manager


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    server: ServerSettings
    controllers: tuple[str, ...] = ()


def run(settings: Settings, *, verbose: bool = False) -> int:
    """Serves until a signal; the exit code says whether it ended well."""

    async def serve(stop: asyncio.Event) -> int:
        started = time.monotonic()
        server = await apiserver.start(settings.server, admission=admission.FUNCTIONS)
        try:
            manager = await _manage(server, settings)
            print(
                f"remuda ready at {server.url} after {time.monotonic() - started:.2f} s, "
                f"pid {os.getpid()}, kubeconfig {server.kubeconfig}",
                flush=True,
            )
            await stop.wait()
            await manager.stop()
        finally:
            await server.stop()
        return 0

    return process.run("up", serve, verbose=verbose)


async def _manage(server: ApiServer, settings: Settings) -> Manager:
    chosen = controllers.choose(settings.controllers)
    client = server.client()
    await controllers.install(client, chosen)
    manager = Manager(client)
    controllers.add(manager, chosen)
    await manager.start()
    manager.lead()
    return manager
