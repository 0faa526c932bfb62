"""Export of spans over OTLP, if OpenTelemetry's own environment variables ask for it.

`OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` turns it on. The SDK reads all other variables
itself: `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SDK_DISABLED`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from remuda.app import AppError
from remuda.runtime import tracing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class TracingUnavailable(AppError):
    """An exporter is configured, but its packages are not installed."""


def start(command: str, environment: Mapping[str, str] = os.environ) -> Callable[[], None]:
    """Start the export if it is configured. Return the function that sends the last spans and ends it."""
    variable = next((name for name in _ENDPOINTS if environment.get(name)), "")
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
