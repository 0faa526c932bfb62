"""Run only the embedded API server, as one process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence

from remuda.apiserver.http.custom_certificate import CustomCertificate
from remuda.apiserver.http.system import Check
from remuda.apiserver.server import ApiServer, ServerSettings, StartRefused
from remuda.app import process
from remuda.app.log_setup import DEFAULT_LOGS, LogSettings
from remuda.kube.admission import AdmissionRegistration
from remuda.kube.web import Handler

__all__ = ["ServerSettings", "run", "start"]


def run(settings: ServerSettings, logs: LogSettings = DEFAULT_LOGS) -> int:
    """Serve until a signal, and return the exit code."""

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

    return process.run("apiserver", serve, logs)


async def start(
    settings: ServerSettings,
    *,
    admission: Sequence[AdmissionRegistration] = (),
    routes: Mapping[str, Handler] | None = None,
    presented: CustomCertificate | None = None,
    readiness: Mapping[str, Check] | None = None,
) -> ApiServer:
    try:
        return await ApiServer.start(
            settings, admission=admission, routes=routes, presented=presented, readiness=readiness
        )
    except StartRefused as refused:
        raise process.StartRefused(str(refused)) from None
