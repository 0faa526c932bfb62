"""Metrics in Prometheus format. Imported by the first scrape, because the library needs 3 MB and time to load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from remuda.apiserver.http.metrics import BUCKETS, RequestMetrics

_LABELS = ("verb", "group", "version", "resource", "subresource", "scope", "component")


def render(metrics: RequestMetrics) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(metrics))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, metrics: RequestMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        running = GaugeMetricFamily("apiserver_longrunning_requests", "Watches being served.", labels=_LABELS)
        for key, number in self._metrics.watches.items():
            running.add_metric((*key, "apiserver"), number)
        yield running
        inflight = GaugeMetricFamily(
            "apiserver_current_inflight_requests", "Requests in work, by kind.", labels=("request_kind",)
        )
        inflight.add_metric(("readOnly",), self._metrics.reads_in_flight)
        inflight.add_metric(("mutating",), self._metrics.writes_in_flight)
        yield inflight
        yield self._stored()

    def _requests(self) -> Iterable[Metric]:
        counts = CounterMetricFamily(
            "apiserver_request", "Requests answered, by what they asked and how it ended.", labels=(*_LABELS, "code")
        )
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds", "Time to answer requests other than watches.", labels=_LABELS
        )
        for key, series in self._metrics.series.items():
            labels = (*key, "apiserver")
            for code, number in series.codes.items():
                counts.add_metric((*labels, str(code)), number)
            durations.add_metric(labels, _cumulative(series.buckets), series.total)
        yield counts
        yield durations

    def _stored(self) -> Metric:
        stored = GaugeMetricFamily("apiserver_storage_objects", "Objects stored, by resource.", labels=("resource",))
        count = self._metrics.objects
        for resource, number in (count() if count is not None else {}).items():
            stored.add_metric((resource,), number)
        return stored


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
    total, listed = 0, []
    for bound, number in zip(bounds, buckets, strict=True):
        total += number
        listed.append((bound, float(total)))
    return listed
