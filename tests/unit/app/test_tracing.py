"""Spans arrive at a collector of OTLP, sent by the real SDK and exporter."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from remuda.access.audit import Audit
from remuda.access.interfaces import Caller
from remuda.app import tracing as exporter
from remuda.kube.objects import Key
from remuda.kube.web import Request
from remuda.runtime import tracing
from remuda.runtime.reconcile_context import CurrentReconcile, current, detached
from remuda.runtime.steps import Step
from tests.unit.access.test_authorization import Peer

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STEP = Step("test.write-plan", "writes a plan")


class Collector:
    """Endpoint that keeps all spans it is sent."""

    def __init__(self) -> None:
        self.spans: dict[str, Any] = {}
        self.services: set[str] = set()
        self.url = ""

    async def _take(self, request: web.Request) -> web.Response:
        for resource in ExportTraceServiceRequest.FromString(await request.read()).resource_spans:
            for attribute in resource.resource.attributes:
                if attribute.key == "service.name":
                    self.services.add(attribute.value.string_value)
            for scope in resource.scope_spans:
                self.spans |= {span.name: span for span in scope.spans}
        return web.Response(content_type="application/x-protobuf")

    async def start(self) -> web.AppRunner:
        application = web.Application()
        application.router.add_post("/v1/traces", self._take)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = "http://{}:{}".format(*runner.addresses[0])
        return runner


@pytest_asyncio.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    made = Collector()
    runner = await made.start()
    monkeypatch.setenv(ENDPOINT, made.url)
    yield made
    await runner.cleanup()


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    yield
    tracing.enable(None)


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


async def exported(collector: Collector) -> dict[str, Any]:
    """Run a reconcile with a step, a Job and a proxied request; return the spans by name."""
    stop = exporter.start("up")
    with tracing.span("reconcile", {"remuda.controller": "machine"}):
        async with STEP:
            await asyncio.sleep(0)
        tracing.describe({"remuda.result": "error"}, failed=True)
    tracing.record("job", 2.0, {"process.exit.code": 1}, failed=True)
    tracing.record("proxy request", 0.5, {"remuda.cluster": "c-1"}, traceparent=PARENT)
    await asyncio.to_thread(stop)
    return collector.spans


async def test_step_is_a_child_of_its_reconcile(collector: Collector) -> None:
    spans = await exported(collector)
    assert spans["test.write-plan"].parent_span_id == spans["reconcile"].span_id
    assert attributes(spans["reconcile"]) == {"remuda.controller": "machine", "remuda.result": "error"}
    assert spans["reconcile"].status.code == 2
    assert spans["test.write-plan"].status.code == 0
    assert collector.services == {"remuda-up"}


async def test_record_keeps_the_duration_and_the_failure(collector: Collector) -> None:
    job = (await exported(collector))["job"]
    assert job.end_time_unix_nano - job.start_time_unix_nano == pytest.approx(2e9, rel=1e-3)
    assert job.status.code == 2
    assert not job.parent_span_id


async def test_proxied_request_joins_the_trace_of_its_caller(collector: Collector) -> None:
    request = (await exported(collector))["proxy request"]
    assert request.trace_id.hex() == PARENT.split("-")[1]
    assert request.parent_span_id.hex() == PARENT.split("-")[2]


async def test_malformed_traceparent_starts_a_trace(collector: Collector) -> None:
    stop = exporter.start("up")
    tracing.record("proxy request", 0.5, {}, traceparent="00-nonsense\udcff")
    await asyncio.to_thread(stop)
    assert not collector.spans["proxy request"].parent_span_id


async def test_background_task_leaves_the_span_of_the_reconcile(collector: Collector) -> None:
    async def records() -> None:
        tracing.record("later", 0.0, {})

    stop = exporter.start("up")
    current.set(CurrentReconcile("machine", "Machine", Key("default", "one")))
    with tracing.span("reconcile", {}):
        await asyncio.create_task(records(), context=detached())
    await asyncio.to_thread(stop)
    assert not collector.spans["later"].parent_span_id


@pytest.mark.parametrize("environment", [{}, {ENDPOINT: ""}, {ENDPOINT: "http://x", "OTEL_SDK_DISABLED": "true"}])
async def test_tracing_without_endpoint_records_nothing(environment: dict[str, str]) -> None:
    exporter.start("up", environment)()
    assert tracing.span("reconcile", {}) is tracing.span("reconcile", {})


async def test_missing_exporter_refuses_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(exporter.TracingUnavailable, match=r"OTEL_EXPORTER_OTLP_ENDPOINT is set.*remuda\[otel\]"):
        exporter.start("up", {ENDPOINT: "http://x"})


@pytest.mark.parametrize(("user", "joins"), [("u-1", True), ("", False)])
async def test_only_an_authenticated_caller_joins_a_proxied_request_to_its_trace(
    collector: Collector, user: str, joins: bool
) -> None:
    stop = exporter.start("up")
    asked = Request(Peer(), "GET", "/k8s/clusters/c/version", {b"traceparent": PARENT.encode()})
    entry = Audit().request(asked)
    entry.caller = Caller(name=user)
    entry.end(200)
    await asyncio.to_thread(stop)
    assert (collector.spans["proxy request"].trace_id.hex() == PARENT.split("-")[1]) is joins
