"""Numbers of a Cluster's Machines: the control plane's from its provider or from Machines, the workers' from their
owners.

A number that was not reported is omitted; it is not zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from remuda.capi import contract, versions
from remuda.capi.cluster.scope import ClusterMembers, ProviderLookup
from remuda.capi.contract import ContractError, Json
from remuda.capi.types import Machine, MachineDeployment, MachineSet
from remuda.kube.conditions import is_true

_FIELDS = ("desiredReplicas", "replicas", "readyReplicas", "availableReplicas", "upToDateReplicas")
_MOST_VERSIONS = 32  # limit of the schema

Numbers = tuple[int | None, int | None, int | None, int | None, int | None]  # in the order of _FIELDS


class _VersionCount(Protocol):
    @property
    def version(self) -> str: ...

    @property
    def replicas(self) -> int | None: ...


def control_plane_counts(control_plane: ProviderLookup, members: ClusterMembers) -> Json:
    if control_plane.ref is None:
        return _counted([_of_machine(machine) for machine in members.control_plane], ())
    if control_plane.obj is None:
        return {}
    try:
        found, running = contract.counts(control_plane.obj), contract.running_versions(control_plane.obj)
    except ContractError:  # the hand-off has reported it; the status is written nevertheless
        return {}
    desired = found.desired if found.desired is not None else _desired(members)
    return _counted([(desired, found.current, found.ready, found.available, found.up_to_date)], running)


def _desired(members: ClusterMembers) -> int | None:
    """Return the desired replicas of MachineDeployments, if they create the Machines of the control plane."""
    wanted = [one.spec.replicas for one in members.control_plane_deployments if one.spec.replicas is not None]
    return sum(wanted) if wanted else None


def worker_counts(members: ClusterMembers) -> Json:
    """Count the Machines of MachineDeployments, and of MachineSets and Machines without an owner."""
    groups: list[MachineDeployment | MachineSet] = [*members.worker_deployments, *members.lone_sets]
    numbers: list[Numbers] = [
        (
            group.spec.replicas,
            group.status.replicas,
            group.status.ready_replicas,
            group.status.available_replicas,
            group.status.up_to_date_replicas,
        )
        for group in groups
    ]
    numbers += [_of_machine(machine) for machine in members.workers if machine.metadata.controller is None]
    return _counted(numbers, [count for group in groups for count in group.status.versions])


def _of_machine(machine: Machine) -> Numbers:
    found = machine.status.conditions
    return 1, 1, *(int(is_true(found, type)) for type in ("Ready", "Available", "UpToDate"))  # type: ignore[return-value]


def _counted(numbers: Sequence[Numbers], running: Iterable[_VersionCount]) -> Json:
    counts: Json = {}
    for place, field in enumerate(_FIELDS):
        known = [number for each in numbers if (number := each[place]) is not None]
        if known:
            counts[field] = sum(known)
    if listed := _versions(running):
        counts["versions"] = listed
    return counts


def _versions(running: Iterable[_VersionCount]) -> list[Json]:
    """Return the versions, lowest first, of counted Machines only."""
    totals: Counter[str] = Counter()
    for each in running:
        totals[each.version] += each.replicas or 0
    ordered = sorted((version for version, n in totals.items() if n > 0), key=_order)
    return [{"version": version, "replicas": totals[version]} for version in ordered[:_MOST_VERSIONS]]


def _order(version: str) -> tuple[bool, object, str]:
    try:
        return True, versions.semantic(version), version
    except ValueError:
        return False, (), version
