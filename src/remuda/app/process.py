"""Common runner of long-running commands: one event loop, clean shutdown on signals, logs and spans.

It also holds the text of listening addresses in messages.
"""

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

from remuda.app import AppError, tracing
from remuda.app.log_setup import DEFAULT_LOGS, LogSettings, set_up
from remuda.runtime import guard

# The thread that writes to disk needs the interpreter lock after every commit, while the event loop is busy. By default
# it would get the lock after 5 ms, which is several times the duration of the commit.
_SWITCH_SECONDS = 0.0005

# Thousands of decoded objects live only for a moment. Python's default, a collection after every 700 allocations, finds
# nothing and costs a tenth of the CPU time.
_COLLECT_AFTER = (20_000, 20, 50)

Address = tuple[str, int]  # that a command listens on


class StartRefused(AppError):
    """The command cannot start or continue; the text tells the user why, and what to do."""


def run(
    command: str, serve: Callable[[asyncio.Event], Coroutine[Any, Any, int]], logs: LogSettings = DEFAULT_LOGS
) -> int:
    """Run `serve` until it returns the exit code; SIGTERM and Ctrl-C set the event that it gets."""
    undo = set_up(logs)
    tune()
    _allow_many_files()
    try:
        stop_tracing = tracing.start(command)
        try:
            return _run(_until_signalled(serve))
        finally:
            stop_tracing()
    except (StartRefused, tracing.TracingUnavailable) as refused:
        print(f"remuda {command}: {refused}", file=sys.stderr)
        return 1
    finally:
        undo()


def _run(main: Coroutine[Any, Any, int]) -> int:
    if guard.wanted():
        with guard.guarded(guard.log_slow_callback), asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(main)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def announce(line: str) -> None:
    """Print the ready line, for people and scripts, and notify systemd if it started this process."""
    print(line, flush=True)
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        try:
            out.sendto(b"READY=1", f"\0{place[1:]}" if place.startswith("@") else place)
        except OSError as error:
            logging.getLogger(__name__).warning("cannot notify systemd that this process is ready: %s", error)


def tune() -> None:
    """Tune the interpreter for many small objects and one writing thread."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(*_COLLECT_AFTER)


async def _until_signalled(serve: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return await serve(stop)


def _allow_many_files() -> None:
    """Raise the limit of open files to the hard limit: each watch is a socket, and a shell's soft limit is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def why_not(error: OSError) -> str:
    """Return the system's error message; a resolver's error has a negative number and its own message."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)
