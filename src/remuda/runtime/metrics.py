"""Metrics of controllers, under controller-runtime's names, so that dashboards made for it work.

Each instance has its own registry, so that several managers in one process or test run do not interfere. A controller
looks up its metrics once; counting is then one addition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

# The creation times of series are a third of all lines, and no dashboard uses them.
disable_created_metrics()  # type: ignore[no-untyped-call]

RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
)
_QUEUE_BUCKETS = (0.00001, 0.0001, 0.001, 0.01, 0.1, 1, 10, 100, 1000)
_PHASE_BUCKETS = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1200, 3600)

_RESULTS = ("success", "error", "requeue", "requeue_after")
TERMINAL = "terminal"  # counted as an error, and on its own


class MeasuredQueue(Protocol):
    """Queue values that are read when metrics are scraped."""

    @property
    def depth(self) -> int: ...

    @property
    def working(self) -> int: ...

    @property
    def workers(self) -> int: ...

    def unfinished_seconds(self) -> float: ...

    def longest_seconds(self) -> float: ...


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._controllers: dict[str, ControllerMetrics] = {}
        self._families = _Families(self.registry)
        self._phases: dict[tuple[str, str], Histogram] = {}
        self._writes: dict[tuple[str, str, str], Counter] = {}

    def controller(self, name: str) -> ControllerMetrics:
        present = self._controllers.get(name)
        if present is None:
            present = self._controllers[name] = ControllerMetrics(name, self._families)
        return present

    def follow_queue(self, name: str, queue: MeasuredQueue) -> None:
        self.controller(name).follow(queue)

    def added(self, name: str) -> None:
        """Count a key that was added to a controller's queue, whether or not it was queued already."""
        self.controller(name).adds.inc()

    def retried(self, name: str) -> None:
        self.controller(name).retries.inc()

    def waited(self, name: str, seconds: float) -> None:
        """Record how long a key waited in the queue."""
        self.controller(name).queue_seconds.observe(seconds)

    def reconciled(self, name: str, result: str, seconds: float) -> None:
        self.controller(name).reconciled(result, seconds)

    def requests_to(self, host: str) -> Callable[[str, str, float], None]:
        """Return the callback by which the client of a server records each request: method, code and seconds."""
        counters: dict[tuple[str, str], Counter] = {}

        def exchanged(method: str, code: str, seconds: float) -> None:
            counter = counters.get((method, code))
            if counter is None:
                counter = counters[method, code] = self._families.requests.labels(code, method, host)
            counter.inc()

        return exchanged

    def wrote(self, controller: str, verb: str, resource: str) -> None:
        counter = self._writes.get((controller, verb, resource))
        if counter is None:
            counter = self._writes[controller, verb, resource] = self._families.writes.labels(
                controller, verb, resource
            )
        counter.inc()

    def phase_ended(self, kind: str, phase: str, seconds: float) -> None:
        histogram = self._phases.get((kind, phase))
        if histogram is None:
            histogram = self._phases[kind, phase] = self._families.phase_seconds.labels(kind, phase)
        histogram.observe(seconds)

    def leads(self, name: str, leading: bool) -> None:
        self._families.leader.labels(name).set(int(leading))

    def render(self) -> bytes:
        """Render the metrics for Prometheus."""
        return generate_latest(self.registry)


class ControllerMetrics:
    """Metrics of one controller, so that no label is looked up during work."""

    def __init__(self, name: str, families: _Families) -> None:
        self._families = families
        self._name = name
        self._results = {result: families.reconciles.labels(name, result) for result in _RESULTS}
        self._errors = families.errors.labels(name)
        self._terminal = families.terminal_errors.labels(name)
        self._seconds = families.reconcile_seconds.labels(name)
        self._work_seconds = families.work_seconds.labels(name, name)
        self.adds = families.adds.labels(name, name)
        self.retries = families.retries.labels(name, name)
        self.queue_seconds = families.queue_seconds.labels(name, name)

    def follow(self, queue: MeasuredQueue) -> None:
        name, families = self._name, self._families
        families.depth.labels(name, name).set_function(lambda: queue.depth)
        families.unfinished.labels(name, name).set_function(queue.unfinished_seconds)
        families.longest.labels(name, name).set_function(queue.longest_seconds)
        families.active.labels(name).set_function(lambda: queue.working)
        families.most.labels(name).set(queue.workers)

    def reconciled(self, result: str, seconds: float) -> None:
        if result == TERMINAL:
            self._terminal.inc()
            result = "error"
        if result == "error":
            self._errors.inc()
        self._results[result].inc()
        self._seconds.observe(seconds)
        self._work_seconds.observe(seconds)


class _Families:
    """Every metric there is, by name."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, doc: str, *labels: str) -> Counter:
            return Counter(name, doc, labels, registry=registry)

        def gauge(name: str, doc: str, *labels: str) -> Gauge:
            return Gauge(name, doc, labels, registry=registry)

        def histogram(name: str, doc: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(name, doc, labels, buckets=buckets, registry=registry)

        runtime, queue = "controller_runtime", "workqueue"
        self.reconciles = counter(f"{runtime}_reconcile_total", "Reconciles by outcome.", "controller", "result")
        self.errors = counter(f"{runtime}_reconcile_errors_total", "Reconciles that failed.", "controller")
        self.terminal_errors = counter(
            f"{runtime}_terminal_reconcile_errors_total",
            "Failures without a retry until the object changes.",
            "controller",
        )
        self.reconcile_seconds = histogram(
            f"{runtime}_reconcile_time_seconds", "How long a reconcile takes.", RECONCILE_BUCKETS, "controller"
        )
        self.active = gauge(f"{runtime}_active_workers", "Reconciles that run now.", "controller")
        self.most = gauge(f"{runtime}_max_concurrent_reconciles", "Reconciles that may run at once.", "controller")
        self.depth = gauge(f"{queue}_depth", "Keys that wait for a worker.", "name", "controller")
        self.adds = counter(f"{queue}_adds_total", "Keys added to the queue.", "name", "controller")
        self.retries = counter(f"{queue}_retries_total", "Keys requeued after a failure.", "name", "controller")
        self.queue_seconds = histogram(
            f"{queue}_queue_duration_seconds",
            "How long a key waits in the queue.",
            _QUEUE_BUCKETS,
            "name",
            "controller",
        )
        self.work_seconds = histogram(
            f"{queue}_work_duration_seconds", "How long the work on a key takes.", _QUEUE_BUCKETS, "name", "controller"
        )
        self.unfinished = gauge(
            f"{queue}_unfinished_work_seconds", "Time spent so far on all keys in progress.", "name", "controller"
        )
        self.longest = gauge(
            f"{queue}_longest_running_processor_seconds",
            "Time spent so far on the slowest key in progress.",
            "name",
            "controller",
        )
        self.requests = counter(
            "rest_client_requests_total", "Requests by status code of the response.", "code", "method", "host"
        )
        self.leader = gauge("leader_election_master_status", "1 while this process is the leader.", "name")
        self.writes = counter(
            "remuda_writes_total",
            "Writes to the API by controller, verb and resource.",
            "controller",
            "verb",
            "resource",
        )
        self.phase_seconds = histogram(
            "remuda_phase_seconds",
            "How long objects stayed in a phase before they left it.",
            _PHASE_BUCKETS,
            "kind",
            "phase",
        )
