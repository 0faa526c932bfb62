"""Progress of a host with the plan it was given, as far as its report shows, and when a failed plan is retried.

Probes that a plan has and the host has not reported yet count as unhealthy: after a plan is applied, the host has to
report them again.

The agent does not retry by itself. The delay depends on the number of failures it has reported and on when its last
attempt began; a host's clock that runs ahead delays nothing, because then the delay counts from the time of delivery.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.providers.controlplane.planner.observation import ClusterFacts, Observation, ObservedHost
from remuda.providers.controlplane.render import Change

RESTARTING: tuple[Change, ...] = ("restart", "drain")
FIRST, LONGEST = 30.0, 600.0  # seconds from the beginning of an attempt to the next one
UNANSWERED = 120.0  # a host that has not begun its plan for this long counts as unreachable


class _Plan(msgspec.Struct):
    probes: Mapping[str, Any] = {}


_PLAN = msgspec.json.Decoder(_Plan)


def is_applied(host: ObservedHost) -> bool:
    report = host.report
    return report.state == "succeeded" or (report.state == "" and host.planned and report.plan == report.applied)


def was_ever_applied(host: ObservedHost) -> bool:
    """Return whether the host has ever applied one of our plans."""
    return bool(host.report.applied) or host.report.state == "succeeded"


def is_failing(host: ObservedHost) -> bool:
    return host.report.state == "failed"


def unhealthy_probes(observed: Observation, host: ObservedHost) -> list[str]:
    if not host.planned:
        return []
    probes, unit = host.report.probes, unawaited_probe(observed, host)
    return sorted(name for name in _PLAN.decode(host.report.plan).probes if name != unit and not probes.get(name))


def reports_failure(observed: Observation, host: ObservedHost) -> bool:
    """Return whether the host itself reports a failed probe; probes without a report do not count."""
    unit = unawaited_probe(observed, host)
    return not all(healthy for name, healthy in host.report.probes.items() if name != unit)


def unawaited_probe(observed: Observation, host: ObservedHost) -> str:
    """Return the probe of the unit if the planner must not wait for it: RKE2 on a host with etcd alone becomes ready
    only when there is an API server, which waits for etcd. Empty: all probes count.
    """
    return unit_probe(observed.cluster) if host.roles.only_etcd and not observed.initialized else ""


def unit_probe(cluster: ClusterFacts) -> str:
    """Return the name of the probe that tells a unit from the components of the unit before; empty: there is none."""
    return cluster.distro.server_unit if cluster.distro.components_outlive_unit else ""


def is_settled(observed: Observation, host: ObservedHost) -> bool:
    """Return whether the host has applied its plan and all its probes are healthy."""
    return is_applied(host) and not unhealthy_probes(observed, host)


def unit_trouble(cluster: ClusterFacts, host: ObservedHost) -> str:
    """Return why the distribution's unit does not run, in the program's own words; empty: nothing is known of that."""
    unit = host.report.unit
    if unit is None:
        return ""
    return f"{cluster.distro.unit(host.roles.server)} is {unit.state}" + (f": {unit.error}" if unit.error else "")


def runs_version(cluster: ClusterFacts, host: ObservedHost) -> bool | None:
    """Return whether the host runs the version; None: unknown."""
    if host.node is None or not host.node.kubelet_version:
        return None
    return host.node.kubelet_version.partition("+")[0].partition("-")[0] == cluster.version.kubernetes


# ---- retries ------------------------------------------------------------------------------------------------------


def next_attempt(host: ObservedHost, now: float) -> float:
    """Return the time from which a host whose plan has failed may be asked to retry."""
    report = host.report
    failures = max(report.failures, 1)
    if report.last_apply is not None and report.last_apply <= now:
        return report.last_apply + delay(failures)
    return (report.delivered or 0.0) + sum(delay(attempt) for attempt in range(1, min(failures, 100) + 1))


def delay(failures: int) -> float:
    return min(FIRST * 2.0 ** min(failures - 1, 10), LONGEST)


def asked_at(host: ObservedHost, now: float) -> float:
    """Return when the host was given its current work: its plan, or the request to retry it."""
    report = host.report
    times = [report.delivered or host.created]
    if report.last_apply is not None and report.last_apply <= now:
        times.append(report.last_apply)
    if report.state in ("pending", "in-progress") and report.failures:
        times.append(min(next_attempt(host, now), now))
    return max(times)


def is_unanswered(host: ObservedHost, now: float) -> bool:
    return host.report.state == "pending" and now - asked_at(host, now) >= UNANSWERED
