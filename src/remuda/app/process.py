"""Common runner of long-running commands: one event loop, clean shutdown on signals, logs and spans.

It also holds the health server of a process that runs controllers, and the text of listening addresses in messages.

Spans are exported over OTLP if OpenTelemetry's own environment variables ask for it: `OTEL_EXPORTER_OTLP_ENDPOINT` or
`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` turns it on. The SDK reads all other variables itself:
`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SDK_DISABLED`.
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
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from remuda.app import AppError
from remuda.app.log_setup import DEFAULT_LOGS, LogSettings, set_up
from remuda.runtime import guard, tracing

if TYPE_CHECKING:
    from remuda.runtime.health import Check
    from remuda.runtime.manager import Manager

# The thread that writes to disk needs the interpreter lock after every commit, while the event loop is busy. By default
# it would get the lock after 5 ms, which is several times the duration of the commit.
_SWITCH_SECONDS = 0.0005

# Thousands of decoded objects live only for a moment. Python's default, a collection after every 700 allocations, finds
# nothing and costs a tenth of the CPU time.
_COLLECT_AFTER = (20_000, 20, 50)


_OTLP_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

Address = tuple[str, int]  # that a command listens on


class StartRefused(AppError):
    """The command cannot start or continue; the text tells the user why, and what to do."""


class TracingUnavailable(AppError):
    """An exporter is configured, but its packages are not installed."""


def run(
    command: str, serve: Callable[[asyncio.Event], Coroutine[Any, Any, int]], logs: LogSettings = DEFAULT_LOGS
) -> int:
    """Run `serve` until it returns the exit code; SIGTERM and Ctrl-C set the event that it gets."""
    undo = set_up(logs)
    tune()
    _allow_many_files()
    try:
        stop_tracing = start_tracing(command)
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


def start_tracing(command: str, environment: Mapping[str, str] = os.environ) -> Callable[[], None]:
    """Start the export of spans if it is configured. Return the function that sends the last spans and ends it."""
    variable = next((name for name in _OTLP_ENDPOINTS if environment.get(name)), "")
    if not variable or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return lambda: None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracingUnavailable(
            f"{variable} is set, but the exporter of spans is not installed ({error}); "
            f"install it with `pip install 'remuda[otel]'`, or unset the variable"
        ) from None
    named = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": f"remuda-{command}"}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracing.enable(provider.get_tracer("remuda"))

    def stop() -> None:
        tracing.enable(None)
        provider.shutdown()

    return stop


# -- addresses


def shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def why_not(error: OSError) -> str:
    """Return the system's error message; a resolver's error has a negative number and its own message."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


# -- health


@asynccontextmanager
async def health_served(address: Address | None, manager: Manager, checks: Mapping[str, Check]) -> AsyncIterator[None]:
    """Serve liveness, readiness and metrics for the duration of the block, if an address is given.

    Raises StartRefused if it cannot listen there.
    """
    if address is None:
        yield
        return
    from remuda.runtime.health import HealthServer  # imported only if it is used

    server = HealthServer(
        {"caches": lambda: _unfilled(manager), "watches": lambda: _unreadable(manager), **checks},
        manager.metrics.render,
    )
    try:
        await server.start(*address)
    except OSError as error:
        raise StartRefused(f"cannot listen on {shown(address)} for --health-listen: {why_not(error)}") from None
    try:
        yield
    finally:
        await server.stop()


def _unfilled(manager: Manager) -> str:
    return "; ".join(f"{target.plural} not cached: {why}" for target, why in manager.caches.missing.items())


def _unreadable(manager: Manager) -> str:
    return "; ".join(f"cannot watch {target.plural}: {why}" for target, why in manager.caches.unreadable.items())
