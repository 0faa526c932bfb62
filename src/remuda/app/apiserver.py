"""Runs the engine alone, as one process that ends well."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence

from remuda.apiserver.http.presented import Presented
from remuda.apiserver.server import ApiServer, Settings, StartRefused
from remuda.app import process
from remuda.kube.admission import Registration
from remuda.kube.web import Handler

__all__ = ["Settings", "run", "start"]


def run(settings: Settings, *, verbose: bool = False) -> int:
    """Serves until a signal; the exit code says whether it ended well."""

    async def serve(stop: asyncio.Event) -> int:
        started = time.monotonic()
        server = await start(settings)
        try:
            process.announce(
                f"remuda apiserver ready at {server.url} after {time.monotonic() - started:.2f} s, "
                f"pid {os.getpid()}, kubeconfig {server.kubeconfig}"
            )
            await stop.wait()
        finally:
            await server.stop()
        return 0

    return process.run("apiserver", serve, verbose=verbose)


async def start(
    settings: Settings,
    *,
    admission: Sequence[Registration] = (),
    routes: Mapping[str, Handler] | None = None,
    presented: Presented | None = None,
) -> ApiServer:
    try:
        return await ApiServer.start(settings, admission=admission, routes=routes, presented=presented)
    except StartRefused as refused:
        raise process.Refused(str(refused)) from None
