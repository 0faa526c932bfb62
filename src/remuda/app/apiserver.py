"""Runs the engine alone, as one process that ends well."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
import time

from remuda.apiserver.server import ApiServer, Settings, StartRefused

__all__ = ["Settings", "run"]

# The thread that writes to disk comes back from every commit into a busy event loop and waits for the interpreter lock.
# By default it would be given it after 5 ms, which is several times the commit itself.
_SWITCH_SECONDS = 0.0005


def run(settings: Settings, *, verbose: bool = False) -> int:
    """Serves until a signal; the exit code says whether it ended well."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    import uvloop

    sys.setswitchinterval(_SWITCH_SECONDS)
    _allow_many_files()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings))
    except StartRefused as refused:
        print(f"remuda apiserver: {refused}", file=sys.stderr)
        return 1


def _allow_many_files() -> None:
    """Each watch is a socket: as many as the system lets this process have, not as many as a shell gives it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(settings: Settings) -> int:
    started = time.monotonic()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await ApiServer.start(settings)
    try:
        print(
            f"remuda apiserver ready at {server.url} after {time.monotonic() - started:.2f} s, "
            f"pid {os.getpid()}, kubeconfig {server.kubeconfig}",
            flush=True,
        )
        await stop.wait()
    finally:
        await server.stop()
    return 0
