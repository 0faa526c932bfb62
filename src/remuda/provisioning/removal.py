"""Deletions that the controller of Clusters decides on: of a Cluster, as a readable plan, and of Machines whose host is
missing. Pure.

A plan of a Cluster's deletion says what is left, what blocks each object, and since when:

    the Cluster of Cluster API, which takes workers, control plane and infrastructure along, in this order → whatever
    of it is left where somebody has removed that one by force → the management Cluster and its namespace → the Cluster

Nothing is drained, because the whole cluster is deleted. Configs belong to the Cluster and are deleted with it.
Deletion can finish from every state; a paused Cluster waits until the user resumes it, and reports that.

A self-registered host whose Node was deleted is missing: no controller recreates it, so its Machine would stay forever.
Such Machines are deleted after a time that the user sets. Only Machines whose Node existed and is known to be deleted
count; a host that merely does not answer is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from remuda.capi.pause import is_paused
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET, Machine
from remuda.capi.types import Cluster as CapiCluster
from remuda.kube import clock, conditions
from remuda.kube.objects import Kind, Object
from remuda.kube.wait import Wait
from remuda.providers.shared.types.bootstrap import CUSTOM_MACHINE
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.provisioning.generate import DELETE_MISSING
from remuda.provisioning.types import Cluster

_MOST_WAITS = 5
_ORDER = (MACHINE_DEPLOYMENT, MACHINE_SET, MACHINE, RKE_CONTROL_PLANE, RKE_CLUSTER)
_HEALTHY, _DELETED = "NodeHealthy", "NodeDeleted"


class RemainingObjects(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of a Cluster that still exist."""

    cluster: CapiCluster | None = None
    machines: Sequence[Machine] = ()
    others: Sequence[tuple[Kind[Any], Object]] = ()  # MachineDeployments, MachineSets, RKEControlPlane, RKECluster


class RemovalStage(NamedTuple):
    waits: Sequence[Wait]  # nothing: all of it is gone
    delete: Sequence[tuple[Kind[Any], Object]] = ()

    @property
    def message(self) -> str:
        shown = [str(wait) for wait in self.waits[:_MOST_WAITS]]
        more = len(self.waits) - len(shown)
        return "\n".join([*shown, *([f"and {more} more"] if more else [])])


def plan(left: RemainingObjects) -> RemovalStage:
    cluster = left.cluster
    if cluster is not None:
        delete = () if cluster.metadata.deleting else ((CAPI_CLUSTER, cluster),)
        waits = [_of_machine(machine) for machine in left.machines]
        return RemovalStage([*waits, _of_cluster(cluster)], delete)
    remaining = [*left.others, *((MACHINE, machine) for machine in left.machines)]
    remaining.sort(key=lambda one: _ORDER.index(one[0]))
    for kind in _ORDER:  # one kind after the other; an object with a controller is deleted with that
        present = [(each, obj) for each, obj in remaining if each is kind]
        if present:
            ours = [(each, obj) for each, obj in present if not obj.metadata.deleting and not _goes_with(obj)]
            return RemovalStage([_of_object(each, obj) for each, obj in remaining], ours)
    return RemovalStage(())


def _goes_with(obj: Object) -> bool:
    owner = obj.metadata.controller
    return owner is not None and owner.kind in (MACHINE_DEPLOYMENT.name, MACHINE_SET.name)


def _of_cluster(cluster: CapiCluster) -> Wait:
    on = f"Cluster {CAPI_CLUSTER.group} {cluster.key}"
    if is_paused(cluster, cluster.metadata):
        return Wait(
            reason="Paused",
            on=on,
            missing="it is paused, so its deletion does not proceed",
            since=_since(cluster),
            then=f"resume it: kubectl patch clusters.cluster.x-k8s.io -n {cluster.metadata.namespace} "
            f'{cluster.metadata.name} --type merge -p \'{{"spec":{{"paused":false}}}}\'',
        )
    said = conditions.find(cluster.status.conditions, "Deleting")
    missing = " ".join(said.message.split()) if said is not None and said.message else "waiting for its deletion"
    return Wait(reason=_reason(said), on=on, missing=missing, since=_since(cluster))


def _of_machine(machine: Machine) -> Wait:
    said = conditions.find(machine.status.conditions, "Deleting")
    deleting = said is not None and said.status == conditions.TRUE
    missing = "waiting for its deletion"
    if deleting and said is not None:
        missing = said.message or said.reason
    infrastructure = machine.spec.infrastructure_ref
    log = f"kubectl describe {infrastructure.kind.lower()} -n {machine.metadata.namespace} {infrastructure.name}"
    return Wait(
        reason=_reason(said) if deleting else "WaitingForMachine",
        on=f"Machine {machine.key}",
        missing=missing,
        since=_since(machine),
        log=log if machine.metadata.deleting else "",
    )


def _of_object(kind: Kind[Any], obj: Object) -> Wait:
    if isinstance(obj, Machine):
        return _of_machine(obj)
    held = ", ".join(obj.metadata.finalizers)
    missing = f"waiting for its deletion{f', blocked by finalizer {held}' if held else ''}"
    return Wait(reason=f"WaitingFor{kind.name}", on=f"{kind.name} {obj.key}", missing=missing, since=_since(obj))


def _reason(said: Any) -> str:
    return str(said.reason) if said is not None and said.reason else "WaitingForCluster"


def _since(obj: Object) -> float | None:
    asked = obj.metadata.deletion_timestamp
    return None if asked is None else clock.parse(asked)


# ---- Machines of missing hosts -----------------------------------------------------------------------------------


class MissingHosts(NamedTuple):
    overdue: list[Machine]
    next_seconds: float | None  # until the next one is; None: there is none


def grace_period(cluster: Cluster) -> float | None:
    """Return the seconds until Machines of missing hosts are deleted; None: never. Raises clock.BadDuration."""
    said = cluster.metadata.annotations.get(DELETE_MISSING)
    return clock.parse_duration(said) if said else None


def find_missing(machines: Iterable[Machine], seconds: float, now: float) -> MissingHosts:
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
    return MissingHosts(overdue, min(waits, default=None))


def _gone_since(machine: Machine) -> float | None:
    reference = machine.spec.infrastructure_ref
    if (reference.api_group, reference.kind) != (CUSTOM_MACHINE.group, CUSTOM_MACHINE.name):
        return None
    said = conditions.find(machine.status.conditions, _HEALTHY)
    if said is None or (said.status, said.reason) != (conditions.FALSE, _DELETED):
        return None
    return clock.parse(said.last_transition_time) if said.last_transition_time else None
