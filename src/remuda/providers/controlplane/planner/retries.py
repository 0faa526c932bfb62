"""Retry times of hosts whose plan failed, and the time of a host's last order.

The agent does not retry by itself. The delay depends on the number of failures it has reported and on when its last
attempt began; a host's clock that runs ahead delays nothing, because then the delay counts from the time of delivery.
"""

from __future__ import annotations

from remuda.providers.controlplane.planner.observation import Host

FIRST, LONGEST = 30.0, 600.0  # seconds from the beginning of an attempt to the next one
UNANSWERED = 120.0  # a host that has not begun its plan for so long is taken for unreachable


def next_attempt(host: Host, now: float) -> float:
    """Return the time from which a host whose plan has failed may be asked to retry."""
    report = host.report
    failures = max(report.failures, 1)
    if report.last_apply is not None and report.last_apply <= now:
        return report.last_apply + delay(failures)
    return (report.delivered or 0.0) + sum(delay(attempt) for attempt in range(1, min(failures, 100) + 1))


def delay(failures: int) -> float:
    return min(FIRST * 2.0 ** min(failures - 1, 10), LONGEST)


def asked_at(host: Host, now: float) -> float:
    """Since when the host has had the order it works on: its plan, or the request to try it again."""
    report = host.report
    times = [report.delivered or host.created]
    if report.last_apply is not None and report.last_apply <= now:
        times.append(report.last_apply)
    if report.state in ("pending", "in-progress") and report.failures:
        times.append(min(next_attempt(host, now), now))
    return max(times)


def is_unanswered(host: Host, now: float) -> bool:
    return host.report.state == "pending" and now - asked_at(host, now) >= UNANSWERED
