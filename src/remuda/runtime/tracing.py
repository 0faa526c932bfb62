"""Spans of OpenTelemetry: reconciles with their steps, programs of Jobs, and proxied requests.

Nothing is recorded, and nothing of OpenTelemetry is imported, until `enable` is called with a tracer. `app.process`
calls it when an exporter is configured. A span holds names of objects, results and durations, never contents of objects
or bodies of requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

from remuda.kube import clock

Attributes = Mapping[str, str | int]

_NO_SPAN: AbstractContextManager[None] = nullcontext()
_tracer: Any = None  # an `opentelemetry.trace.Tracer`, which is not installed everywhere
_step_began: ContextVar[float] = ContextVar("step_began", default=0.0)


def enable(tracer: Any) -> None:
    """Record spans with this tracer from now on; None ends it."""
    global _tracer
    _tracer = tracer


def span(name: str, attributes: Attributes) -> AbstractContextManager[Any]:
    """Return a span that lasts as long as the block; spans recorded inside are its children."""
    if _tracer is None:
        return _NO_SPAN
    entered: AbstractContextManager[Any] = _tracer.start_as_current_span(name, attributes=attributes)
    return entered


def leave() -> None:
    """Leave the surrounding span: what this task records from now on belongs to none."""
    if _tracer is None:
        return
    from opentelemetry import context

    context.attach(context.Context())


def describe(attributes: Attributes, *, failed: bool) -> None:
    """Add attributes to the span of the surrounding block."""
    if _tracer is None:
        return
    from opentelemetry import trace

    current = trace.get_current_span()
    current.set_attributes(attributes)
    if failed:
        current.set_status(trace.StatusCode.ERROR)


def record(
    name: str, seconds: float, attributes: Attributes, *, failed: bool = False, traceparent: str | None = None
) -> None:
    """Record a span that has just ended. `traceparent`: the caller's W3C header, whose trace the span joins."""
    if _tracer is None:
        return
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent = TraceContextTextMapPropagator().extract({"traceparent": traceparent}) if traceparent else None
    end = clock.time()
    recorded = _tracer.start_span(name, parent, attributes=attributes, start_time=_nanoseconds(end - seconds))
    if failed:
        recorded.set_status(trace.StatusCode.ERROR)
    recorded.end(_nanoseconds(end))


def step_begins() -> None:
    if _tracer is not None:
        _step_began.set(clock.time())


def step_ends(name: str, *, failed: bool) -> None:
    if _tracer is not None:
        record(name, clock.time() - _step_began.get(), {}, failed=failed)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
