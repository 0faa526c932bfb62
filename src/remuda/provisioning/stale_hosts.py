"""Machines of self-registered hosts whose Node was deleted; they are deleted after a time that the user sets. Pure.

No controller recreates such a host, so its Machine would stay forever. Only Machines whose Node existed and is known to
be deleted count; a host that merely does not answer is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from remuda.capi.types import Machine
from remuda.kube import clock, conditions
from remuda.providers.shared.types.bootstrap import CUSTOM_MACHINE
from remuda.provisioning.generate import DELETE_MISSING
from remuda.provisioning.types import Cluster

_HEALTHY, _DELETED = "NodeHealthy", "NodeDeleted"


class Missing(NamedTuple):
    overdue: list[Machine]
    next_seconds: float | None  # until the next one is; None: there is none


def grace_period(cluster: Cluster) -> float | None:
    """Return the seconds until Machines of missing hosts are deleted; None: never. Raises clock.BadDuration."""
    said = cluster.metadata.annotations.get(DELETE_MISSING)
    return clock.parse_duration(said) if said else None


def find(machines: Iterable[Machine], seconds: float, now: float) -> Missing:
    overdue: list[Machine] = []
    waits: list[float] = []
    for machine in machines:
        since = _gone_since(machine)
        if since is None or machine.metadata.deleting:
            continue
        left = since + seconds - now
        if left <= 0:
            overdue.append(machine)
        else:
            waits.append(left)
    return Missing(overdue, min(waits, default=None))


def _gone_since(machine: Machine) -> float | None:
    reference = machine.spec.infrastructure_ref
    if (reference.api_group, reference.kind) != (CUSTOM_MACHINE.group, CUSTOM_MACHINE.name):
        return None
    said = conditions.find(machine.status.conditions, _HEALTHY)
    if said is None or (said.status, said.reason) != (conditions.FALSE, _DELETED):
        return None
    return clock.parse(said.last_transition_time) if said.last_transition_time else None
