"""Run only the embedded API server, as one process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import remuda
from remuda.apiserver.http.custom_certificate import CustomCertificate
from remuda.apiserver.http.system import Check
from remuda.apiserver.server import ApiServer, ServerSettings, StartRefused
from remuda.app import process, server_record
from remuda.app.log_setup import DEFAULT_LOGS, LogSettings
from remuda.app.server_record import ServerRecord
from remuda.kube import clock
from remuda.kube.admission import AdmissionRegistration
from remuda.kube.web import Handler

__all__ = ["ServerSettings", "record_of", "run", "start"]


def run(settings: ServerSettings, logs: LogSettings = DEFAULT_LOGS) -> int:
    """Serve until a signal, and return the exit code."""

    async def serve(stop: asyncio.Event) -> int:
        started = time.monotonic()
        server = await start(settings)
        try:
            server_record.write(settings.data_dir, record_of(server, None, ready=True))
            process.announce(
                f"remuda apiserver ready at {server.url} after {time.monotonic() - started:.2f} s, "
                f"pid {os.getpid()}, kubeconfig {server.kubeconfig}"
            )
            await stop.wait()
        finally:
            server_record.remove(settings.data_dir)
            await server.stop()
        return 0

    return process.run("apiserver", serve, logs)


def record_of(server: ApiServer, log_file: Path | None, *, ready: bool = False) -> ServerRecord:
    return ServerRecord(
        pid=os.getpid(),
        url=server.url,
        version=remuda.__version__,
        since=clock.rfc3339(clock.time()),
        ready=ready,
        log_file=str(log_file.absolute()) if log_file is not None else "",
    )


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
