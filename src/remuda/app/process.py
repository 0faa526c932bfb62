"""Shared frame of every long-running command: one event loop, a clean end on signals, logs."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from remuda.app import tracing
from remuda.app.log_setup import DEFAULT_LOGS, LogSettings, set_up
from remuda.app.tracing import TracingUnavailable
from remuda.runtime import guard

# The thread that writes to disk comes back from every commit into a busy event loop and waits for the interpreter lock.
# By default it would be given it after 5 ms, which is several times the commit itself.
_SWITCH_SECONDS = 0.0005

# Objects are decoded by the thousand and live for a moment; collecting after every 700 of them, as Python does by
# default, finds nothing and costs a tenth of the processor.
_COLLECT_AFTER = (20_000, 20, 50)


class StartRefused(Exception):
    """The command cannot start, or cannot go on; the text tells the person why and what to do."""


def run(
    command: str, serve: Callable[[asyncio.Event], Coroutine[Any, Any, int]], logs: LogSettings = DEFAULT_LOGS
) -> int:
    """Runs `serve` until it returns the exit code; SIGTERM and Ctrl-C set the event it is given."""
    undo = set_up(logs)
    tune()
    _allow_many_files()
    try:
        stop_tracing = tracing.start(command)
        try:
            return _run(_until_signalled(serve))
        finally:
            stop_tracing()
    except (StartRefused, TracingUnavailable) as refused:
        print(f"remuda {command}: {refused}", file=sys.stderr)
        return 1
    finally:
        undo()


def _run(main: Coroutine[Any, Any, int]) -> int:
    if guard.wanted():
        with guard.guarded(guard.log_offence), asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(main)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def announce(line: str) -> None:
    """One line for people and scripts; and systemd, if it started this, learns that what it waits for has come."""
    print(line, flush=True)
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        try:
            out.sendto(b"READY=1", f"\0{place[1:]}" if place.startswith("@") else place)
        except OSError as error:
            logging.getLogger(__name__).warning("systemd cannot be told that this is ready: %s", error)


def tune() -> None:
    """The interpreter, for many small objects and one writing thread."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(*_COLLECT_AFTER)


async def _until_signalled(serve: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return await serve(stop)


def _allow_many_files() -> None:
    """Each watch is a socket: as many as the system lets this process have, not as many as a shell gives it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
