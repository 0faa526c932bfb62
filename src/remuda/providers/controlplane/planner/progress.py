"""How far a host is with the plan it was given, as far as its report tells.

Probes that a plan has and the host has not reported yet are not healthy: after a plan is applied they have to be shown
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.providers.controlplane.planner.observed import Cluster, Host
from remuda.providers.controlplane.render import Change

RESTARTING: tuple[Change, ...] = ("restart", "drain")


class _Plan(msgspec.Struct):
    probes: Mapping[str, Any] = {}


_PLAN = msgspec.json.Decoder(_Plan)


def is_applied(host: Host) -> bool:
    report = host.report
    return report.state == "succeeded" or (report.state == "" and host.planned and report.plan == report.applied)


def was_ever_applied(host: Host) -> bool:
    """Whether it has become what some plan of ours makes of it."""
    return bool(host.report.applied) or host.report.state == "succeeded"


def is_failing(host: Host) -> bool:
    return host.report.state == "failed"


def unhealthy_probes(host: Host) -> list[str]:
    probes = host.report.probes
    return (
        sorted(name for name in _PLAN.decode(host.report.plan).probes if not probes.get(name)) if host.planned else []
    )


def is_settled(host: Host) -> bool:
    """It has applied what it was given, and is well."""
    return is_applied(host) and not unhealthy_probes(host)


def runs_version(cluster: Cluster, host: Host) -> bool | None:
    """None: nobody can say."""
    if host.node is None or not host.node.kubelet_version:
        return None
    return host.node.kubelet_version.partition("+")[0].partition("-")[0] == cluster.version.kubernetes
