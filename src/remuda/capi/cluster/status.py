"""Status of a Cluster, derived from scratch: no I/O, and the same facts give the same bytes.

`derive` takes all observations of one reconcile and returns the whole status, which replaces the previous one. Two
things are decided elsewhere: flags that are never reset and data from providers (`handoff`), and the health of the
cluster (`health`), so that Available agrees with the conditions of other kinds of clusters.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remuda.capi import contract, health
from remuda.capi.cluster import counts
from remuda.capi.cluster.deletion import ClusterDeletionStage
from remuda.capi.cluster.scope import ClusterMembers, ProviderLookup, is_control_plane
from remuda.capi.conditions import (
    Classify,
    Priority,
    Reporter,
    aggregate,
    classifier,
    internal_error,
    mirror,
    mirror_of_absent,
    negative_with,
    remediating,
    summary,
)
from remuda.capi.contract import ContractError, Json
from remuda.capi.types import Cluster, Machine, MachineDeployment, MachineSet
from remuda.kube import clock
from remuda.kube.conditions import UNKNOWN, condition, find, is_true
from remuda.kube.objects import Condition
from remuda.runtime.outcome import Retryable
from remuda.runtime.remote import Connection

# A Machine without an UpToDate condition counts only when it is older than this; upstream's value.
_UP_TO_DATE_AFTER_SECONDS = 10.0

_AVAILABLE_FROM = (
    "Deleting",
    "RemoteConnectionProbe",
    "InfrastructureReady",
    "ControlPlaneAvailable",
    "WorkersAvailable",
)
_TOPOLOGY = "Waiting for the cluster topology to be reconciled"


class ObservedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """Observations of one reconcile."""

    cluster: Cluster
    now: float
    provisioned: bool = False
    initialized: bool = False
    endpoint_known: bool = False
    infrastructure: ProviderLookup = ProviderLookup()
    control_plane: ProviderLookup = ProviderLookup()
    members: ClusterMembers = ClusterMembers()
    connection: Connection = Connection()
    stage: ClusterDeletionStage | None = None  # while deleting

    @property
    def deleting(self) -> bool:
        return self.cluster.metadata.deleting


class ClusterReport(msgspec.Struct, frozen=True):
    conditions: Sequence[Condition]
    phase: str
    control_plane: Json
    workers: Json
    look_again: float | None = None  # seconds until the status changes without an event

    def write(self, status: Json) -> None:
        """Write everything but the conditions; empty counts are omitted, because schemas reject empty objects."""
        status["phase"] = self.phase
        for part, found in (("controlPlane", self.control_plane), ("workers", self.workers)):
            if found:
                status[part] = found
            else:
                status.pop(part, None)


def derive(seen: ObservedCluster) -> ClusterReport:
    conditions = [
        _deleting(seen),
        _probe(seen),
        _infrastructure_ready(seen),
        _control_plane_available(seen),
        _control_plane_initialized(seen),
        _workers_available(seen),
        *_machines(seen),
        *_movements(seen),
        remediating(_reporters(seen.members.machines)),
    ]
    alive = health.judge(_evidence(seen, conditions))
    waits = _young_machines(seen)
    if alive.look_again is not None:
        waits.append(alive.look_again)
    return ClusterReport(
        conditions=[_available(seen, conditions, alive), *conditions],
        phase=_phase(seen),
        control_plane=counts.control_plane_counts(seen.control_plane, seen.members),
        workers=counts.worker_counts(seen.members),
        look_again=min(waits, default=None),
    )


def _phase(seen: ObservedCluster) -> str:
    if seen.deleting:
        return "Deleting"
    if seen.provisioned and seen.endpoint_known:
        return "Provisioned"
    spec = seen.cluster.spec
    if spec.infrastructure_ref or spec.control_plane_ref or spec.topology:
        return "Provisioning"
    return "Pending"


def _deleting(seen: ObservedCluster) -> Condition:
    if not seen.deleting:
        return condition("Deleting", False, "NotDeleting")
    if seen.stage is None:
        return condition("Deleting", True, "Deleting")
    return condition("Deleting", True, seen.stage.reason, seen.stage.message)


def _evidence(seen: ObservedCluster, conditions: Sequence[Condition]) -> health.Evidence:
    return health.Evidence(
        now=seen.now,
        built=seen.initialized,
        connection=seen.connection,
        control_plane=find(conditions, "ControlPlaneAvailable") if seen.control_plane.obj is not None else None,
        machines=seen.members.machines,
        before=find(seen.cluster.status.conditions, "Available"),
    )


def _available(seen: ObservedCluster, conditions: Sequence[Condition], alive: health.HealthVerdict) -> Condition:
    """Return upstream's summary, unless the cluster is unhealthy or nothing recent is known of it."""
    gates = seen.cluster.spec.availability_gates
    of = [*_AVAILABLE_FROM, *(gate.condition_type for gate in gates)]
    present = {one.type: one for one in (*seen.cluster.status.conditions, *conditions)}
    found = summary("Available", present.values(), of, classify=_judge(seen, classifier(negative_with(gates))))
    if seen.deleting or alive.good or alive.reason == health.WAITING_FOR_API:
        return found
    return condition("Available", alive.status, alive.reason, alive.message)


def _judge(seen: ObservedCluster, usual: Classify) -> Classify:
    """Wrap a classifier: while a Cluster is being deleted, missing parts of it are not an issue."""

    def judge(one: Condition) -> Priority:
        gone = one.reason in ("ObjectDeleted", "ObjectDoesNotExist")
        if seen.deleting and gone and one.type in ("InfrastructureReady", "ControlPlaneAvailable"):
            return Priority.INFO
        return usual(one)

    return judge


# The connection


def _probe(seen: ObservedCluster) -> Condition:
    """Return RemoteConnectionProbe. Within the grace period, the last known state of the connection stands."""
    type, link = "RemoteConnectionProbe", seen.connection
    if not health.is_silent(link, seen.now):
        if link.last_success is not None:
            return condition(type, True, "ProbeSucceeded", _late_nodes(link))
        before = find(seen.cluster.status.conditions, type)
        return before or condition(type, False, "ProbeFailed", "Remote connection not established yet")
    message = "Remote connection probe failed"
    if link.last_success is not None:
        message += f", probe last succeeded at {clock.rfc3339(link.last_success)}"
    return condition(type, False, "ProbeFailed", f"{message}: {link.error}" if link.error else message)


def _late_nodes(link: Connection) -> str:
    return f"Nodes are listed every few seconds instead of watched: {link.unreadable}" if link.unreadable else ""


# Infrastructure and control plane


def _infrastructure_ready(seen: ObservedCluster) -> Condition:
    type, found = "InfrastructureReady", seen.infrastructure
    if found.ref is None:
        return _without_ref(seen, type, "Ready", ready=True)
    return _mirrored(seen, type, found, like="Ready", ready=seen.provisioned)


def _control_plane_available(seen: ObservedCluster) -> Condition:
    type, found = "ControlPlaneAvailable", seen.control_plane
    if found.ref is None:
        return _without_ref(seen, type, "Available", ready=seen.initialized)
    return _mirrored(seen, type, found, like="Available", ready=seen.initialized)


def _without_ref(seen: ObservedCluster, type: str, like: str, *, ready: bool) -> Condition:
    if seen.cluster.spec.topology is not None:
        return condition(type, False, "ObjectDoesNotExist", "" if seen.deleting else _TOPOLOGY)
    return mirror(type, None, like=like, ready=ready, waiting_for="Waiting for the first control plane Machine's Node")


def _mirrored(seen: ObservedCluster, type: str, found: ProviderLookup, *, like: str, ready: bool) -> Condition:
    if found.error is not None:
        return _unreadable(type, found.error)
    if found.obj is None:
        kind = found.ref.kind if found.ref is not None else ""
        return mirror_of_absent(type, kind=kind, existed=ready, owner="Cluster", owner_deleting=seen.deleting)
    path = contract.provisioned_path if like == "Ready" else contract.initialized_path
    waiting_for = f"{found.obj.kind} {'.'.join(path(found.obj))} is false"
    try:
        source = contract.condition(found.obj, like)
    except ContractError as error:
        return condition(type, UNKNOWN, "InvalidConditionReported", str(error))
    return mirror(type, source, like=like, ready=ready, waiting_for=waiting_for)


def _unreadable(type: str, error: Exception) -> Condition:
    """Return the condition for an error: with the message of a Retryable error; any other error is only in the log."""
    if isinstance(error, Retryable):
        return condition(type, UNKNOWN, "InternalError", str(error))
    return internal_error(type)


def _control_plane_initialized(seen: ObservedCluster) -> Condition:
    type, found = "ControlPlaneInitialized", seen.control_plane
    if seen.initialized or is_true(seen.cluster.status.conditions, type):
        return condition(type, True, "Initialized")
    if found.error is not None:
        return _unreadable(type, found.error)
    if found.absent and found.ref is not None:
        return condition(type, UNKNOWN, "ObjectDoesNotExist", f"{found.ref.kind} does not exist")
    if found.ref is not None:
        return condition(type, False, "NotInitialized", "Control plane not yet initialized")
    if seen.cluster.spec.topology is not None:
        return condition(type, UNKNOWN, "ObjectDoesNotExist", "" if seen.deleting else _TOPOLOGY)
    return condition(type, False, "NotInitialized", "Waiting for the first control plane Machine to have a Node")


# Machines and who owns them


def _workers_available(seen: ObservedCluster) -> Condition:
    deployments = _reporters_of("MachineDeployment", seen.members.worker_deployments)
    return aggregate("WorkersAvailable", "Available", deployments, when_empty="NoWorkers")


def _machines(seen: ObservedCluster) -> list[Condition]:
    found = []
    for prefix, machines in (("ControlPlane", seen.members.control_plane), ("Worker", seen.members.workers)):
        grown = [one for one in machines if _reports_up_to_date(one) or _age(seen, one) > _UP_TO_DATE_AFTER_SECONDS]
        found += [
            aggregate(f"{prefix}MachinesReady", "Ready", _reporters(machines), when_empty="NoReplicas"),
            aggregate(f"{prefix}MachinesUpToDate", "UpToDate", _reporters(grown), when_empty="NoReplicas"),
        ]
    return found


def _young_machines(seen: ObservedCluster) -> list[float]:
    silent = [one for one in seen.members.machines if not _reports_up_to_date(one)]
    return [left for one in silent if (left := _UP_TO_DATE_AFTER_SECONDS - _age(seen, one)) > 0]


def _reports_up_to_date(machine: Machine) -> bool:
    return find(machine.status.conditions, "UpToDate") is not None


def _age(seen: ObservedCluster, machine: Machine) -> float:
    created = machine.metadata.creation_timestamp
    return seen.now - clock.parse(created) if created else 0.0


def _movements(seen: ObservedCluster) -> list[Condition]:
    """Return RollingOut, ScalingUp and ScalingDown of all owners of Machines. A control plane counts only for those
    conditions that it reports."""
    if seen.control_plane.error is not None:
        return [_unreadable(type, seen.control_plane.error) for type in ("RollingOut", "ScalingUp", "ScalingDown")]
    deployments = _reporters_of("MachineDeployment", seen.members.deployments)
    everybody = [*deployments, *_reporters_of("MachineSet", seen.members.lone_sets)]
    return [
        aggregate(type, type, [*_control_plane(seen, type), *others], when_empty=f"Not{type}")
        for type, others in (("RollingOut", deployments), ("ScalingUp", everybody), ("ScalingDown", everybody))
    ]


def _control_plane(seen: ObservedCluster, type: str) -> list[Reporter]:
    obj = seen.control_plane.obj
    if obj is None:
        return []
    reported = [one for one in contract.conditions(obj) if one.type == type]
    return [Reporter(obj.kind, obj.key.name, reported)] if reported else []


def _reporters(machines: Sequence[Machine]) -> list[Reporter]:
    return [
        Reporter("Machine", one.metadata.name, one.status.conditions, control_plane=is_control_plane(one))
        for one in machines
    ]


def _reporters_of(kind: str, groups: Sequence[MachineDeployment] | Sequence[MachineSet]) -> list[Reporter]:
    return [Reporter(kind, one.metadata.name, one.status.conditions) for one in groups]
