"""Request metrics under upstream's names, cheap enough to keep for every request.

A request costs one dictionary lookup and a few additions; the families Prometheus reads are made when it reads them.
Only what is served becomes a label: a client cannot grow the tables by inventing paths.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from remuda.apiserver.http.routes import RequestInfo

_BUCKETS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3),
    *(4, 5, 6, 8, 10, 15, 20, 30, 45, 60),
)
_VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
}
_LABELS = ("verb", "group", "version", "resource", "subresource", "scope", "component")

Key = tuple[str, str, str, str, str, str]


class _Series:
    __slots__ = ("buckets", "codes", "total")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.buckets = [0] * (len(_BUCKETS) + 1)
        self.total = 0.0


class RequestMetrics(Collector):
    """`objects` gives the number of stored objects per resource, for apiserver_storage_objects."""

    def __init__(self, objects: Callable[[], Mapping[str, int]] | None = None) -> None:
        self._series: dict[Key, _Series] = {}
        self._watches: dict[Key, int] = {}
        self._objects = objects
        self.reads_in_flight = 0
        self.writes_in_flight = 0
        self.dropped = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def record(self, info: RequestInfo, known: bool, code: int, seconds: float) -> None:
        key = _key_of(info, known)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series()
        series.codes[code] = series.codes.get(code, 0) + 1
        series.buckets[bisect_left(_BUCKETS, seconds)] += 1
        series.total += seconds

    def watch_started(self, info: RequestInfo) -> Callable[[], None]:
        """Counts a watch as running until what this returns is called."""
        key = _key_of(info, True)
        self._watches[key] = self._watches.get(key, 0) + 1

        def ended() -> None:
            self._watches[key] -= 1

        return ended

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        running = GaugeMetricFamily("apiserver_longrunning_requests", "Watches being served.", labels=_LABELS)
        for key, number in self._watches.items():
            running.add_metric((*key, "apiserver"), number)
        yield running
        inflight = GaugeMetricFamily(
            "apiserver_current_inflight_requests", "Requests in work, by kind.", labels=("request_kind",)
        )
        inflight.add_metric(("readOnly",), self.reads_in_flight)
        inflight.add_metric(("mutating",), self.writes_in_flight)
        yield inflight
        yield from self._stored()

    def _requests(self) -> Iterable[Metric]:
        counts = CounterMetricFamily(
            "apiserver_request", "Requests answered, by what they asked and how it ended.", labels=(*_LABELS, "code")
        )
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds", "Time to answer requests other than watches.", labels=_LABELS
        )
        for key, series in self._series.items():
            labels = (*key, "apiserver")
            for code, number in series.codes.items():
                counts.add_metric((*labels, str(code)), number)
            durations.add_metric(labels, _cumulative(series.buckets), series.total)
        yield counts
        yield durations

    def _stored(self) -> Iterable[Metric]:
        stored = GaugeMetricFamily("apiserver_storage_objects", "Objects stored, by resource.", labels=("resource",))
        for resource, number in (self._objects() if self._objects is not None else {}).items():
            stored.add_metric((resource,), number)
        yield stored


def _key_of(info: RequestInfo, known: bool) -> Key:
    verb = _VERBS.get(info.verb, "OTHER")
    if not known:
        return (verb, "", "", "", "", "")
    scope = "resource" if info.name else ("namespace" if info.namespace else "cluster")
    return (verb, info.group, info.version, info.resource, info.subresource, scope)


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in _BUCKETS), "+Inf"]
    total, listed = 0, []
    for bound, number in zip(bounds, buckets, strict=True):
        total += number
        listed.append((bound, float(total)))
    return listed
