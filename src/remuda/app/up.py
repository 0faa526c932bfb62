"""The whole product in one process: the embedded engine, and the controllers on it."""

from __future__ import annotations

import asyncio
import os
import time

import msgspec

from remuda.app import apiserver, controllers, health, process
from remuda.app.addresses import Address
from remuda.app.apiserver import Settings as ServerSettings
from remuda.capi import admission
from remuda.runtime.manager import Manager


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    server: ServerSettings
    controllers: tuple[str, ...] = ()
    health: Address | None = None


def run(settings: Settings, *, verbose: bool = False) -> int:
    """Serves until a signal; the exit code says whether it ended well."""
    return process.run("up", lambda stop: serve(settings, stop), verbose=verbose)


async def serve(settings: Settings, stop: asyncio.Event) -> int:
    started = time.monotonic()
    chosen = controllers.choose(settings.controllers)
    server = await apiserver.start(settings.server, admission=admission.FUNCTIONS)

    def tell() -> None:
        print(
            f"remuda ready at {server.url} after {time.monotonic() - started:.2f} s, "
            f"pid {os.getpid()}, kubeconfig {server.kubeconfig}",
            flush=True,
        )
        if not chosen:
            print(f"remuda {controllers.told(chosen)}", flush=True)

    try:
        manager = Manager(server.client())
        manager.at_lead(tell)
        async with health.served(settings.health, manager, {}):
            await controllers.install(server.client(), chosen)
            controllers.add(manager, chosen)
            await manager.run(stop)
    finally:
        await server.stop()
    return 0
