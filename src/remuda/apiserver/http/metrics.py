"""Request metrics with upstream's names, cheap enough to record for every request.

A request costs one dictionary lookup and a few additions; `exposition` renders the text at each scrape. Only served
resources become labels: a client cannot grow the tables by inventing paths.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping

from remuda.apiserver.http.routes import RequestInfo

BUCKETS = (
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

Key = tuple[str, str, str, str, str, str]


class Series:
    __slots__ = ("buckets", "codes", "total")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.total = 0.0


class RequestMetrics:
    """Metrics of requests. `objects` returns the number of stored objects per resource, for
    apiserver_storage_objects.
    """

    def __init__(self, objects: Callable[[], Mapping[str, int]] | None = None) -> None:
        self.series: dict[Key, Series] = {}
        self.watches: dict[Key, int] = {}
        self.objects = objects
        self.reads_in_flight = 0
        self.writes_in_flight = 0
        self.dropped = 0

    def record(self, info: RequestInfo, known: bool, code: int, seconds: float) -> None:
        key = _key_of(info, known)
        series = self.series.get(key)
        if series is None:
            series = self.series[key] = Series()
        series.codes[code] = series.codes.get(code, 0) + 1
        series.buckets[bisect_left(BUCKETS, seconds)] += 1
        series.total += seconds

    def watch_started(self, info: RequestInfo) -> Callable[[], None]:
        """Count a watch as running until the returned function is called."""
        key = _key_of(info, True)
        self.watches[key] = self.watches.get(key, 0) + 1

        def ended() -> None:
            self.watches[key] -= 1

        return ended

    def render(self) -> bytes:
        from remuda.apiserver.http.exposition import render  # only a scrape needs it

        return render(self)


def _key_of(info: RequestInfo, known: bool) -> Key:
    verb = _VERBS.get(info.verb, "OTHER")
    if not known:
        return (verb, "", "", "", "", "")
    scope = "resource" if info.name else ("namespace" if info.namespace else "cluster")
    return (verb, info.group, info.version, info.resource, info.subresource, scope)
