"""Metrics under the names dashboards know."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from remuda.runtime.metrics import TERMINAL, Metrics

CONTROLLER = {"controller": "things"}
QUEUE = {"controller": "things", "name": "things"}


class Counter:
    depth = 3
    working = 2
    workers = 10

    def unfinished_seconds(self) -> float:
        return 4.5

    def longest_seconds(self) -> float:
        return 3.0


def samples(metrics: Metrics) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def test_reconciles_are_counted_by_outcome_and_time() -> None:
    metrics = Metrics()
    for result in ("success", "success", "error", TERMINAL, "requeue", "requeue_after"):
        metrics.reconciled("things", result, 0.25)
    found = samples(metrics)
    assert found["controller_runtime_reconcile_total{controller=things,result=success}"] == 2
    assert found["controller_runtime_reconcile_total{controller=things,result=error}"] == 2
    assert found["controller_runtime_reconcile_total{controller=things,result=requeue_after}"] == 1
    assert found["controller_runtime_reconcile_errors_total{controller=things}"] == 2
    assert found["controller_runtime_terminal_reconcile_errors_total{controller=things}"] == 1
    assert found["controller_runtime_reconcile_time_seconds_sum{controller=things}"] == 1.5
    assert found["controller_runtime_reconcile_time_seconds_bucket{controller=things,le=0.2}"] == 0
    assert found["controller_runtime_reconcile_time_seconds_bucket{controller=things,le=0.25}"] == 6
    assert found["workqueue_work_duration_seconds_count{controller=things,name=things}"] == 6


def test_queue_metrics_are_read_at_scrape_time() -> None:
    metrics = Metrics()
    queue = Counter()
    metrics.follow_queue("things", queue)
    metrics.added("things")
    metrics.retried("things")
    metrics.waited("things", 2.0)
    found = metrics.registry.get_sample_value
    assert found("workqueue_depth", QUEUE) == 3
    queue.depth = 7
    assert found("workqueue_depth", QUEUE) == 7
    assert found("workqueue_unfinished_work_seconds", QUEUE) == 4.5
    assert found("workqueue_longest_running_processor_seconds", QUEUE) == 3.0
    assert found("workqueue_adds_total", QUEUE) == 1
    assert found("workqueue_retries_total", QUEUE) == 1
    assert found("workqueue_queue_duration_seconds_sum", QUEUE) == 2.0
    assert found("controller_runtime_active_workers", CONTROLLER) == 2
    assert found("controller_runtime_max_concurrent_reconciles", CONTROLLER) == 10


def test_request_and_leadership_metrics_are_recorded() -> None:
    metrics = Metrics()
    exchanged = metrics.requests_to("10.0.0.1:6443")
    for code in ("200", "200", "404"):
        exchanged("GET", code, 0.01)
    metrics.leads("remuda", True)
    found = samples(metrics)
    assert found["rest_client_requests_total{code=200,host=10.0.0.1:6443,method=GET}"] == 2
    assert found["rest_client_requests_total{code=404,host=10.0.0.1:6443,method=GET}"] == 1
    assert found["leader_election_master_status{name=remuda}"] == 1
    metrics.leads("remuda", False)
    assert samples(metrics)["leader_election_master_status{name=remuda}"] == 0


def test_metrics_of_two_managers_are_separate() -> None:
    one, other = Metrics(), Metrics()
    one.added("things")
    assert other.registry.get_sample_value("workqueue_adds_total", QUEUE) is None
    assert one.controller("things") is one.controller("things")


def test_created_series_are_not_exported() -> None:
    """Prometheus has no use for the moment each series was made."""
    metrics = Metrics()
    metrics.added("things")
    assert not [name for name in samples(metrics) if "_created" in name]
