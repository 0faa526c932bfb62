"""Status of a Machine, derived without I/O: the conditions of this controller, the phase, and the next check.

The same observations always give the same status, and a transition time changes only with its condition, so a reconcile
without news writes nothing. Conditions of other controllers (health checks, remediation, gates) are only read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from remuda.capi.conditions import internal_error, mirror, mirror_of_absent, negative_with, summary
from remuda.capi.machine.deletion import MachineDeletionStage
from remuda.capi.machine.node_health import NodeView, node_conditions
from remuda.capi.types import Cluster, Machine
from remuda.kube import clock
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN, condition, find, put
from remuda.kube.objects import Condition

LONG_DELETION_SECONDS = 15 * 60
LONG_DRAIN_SECONDS = 5 * 60


class ProviderState(NamedTuple):
    """State of a provider's object in this reconcile."""

    kind: str
    present: bool = False
    error: str = ""
    flag: str = ""  # path of the field that reports completion
    ready: Condition | None = None  # its own Ready
    malformed: str = ""  # why its own Ready could not be read


class Deleting(NamedTuple):
    """Progress of the deletion in this reconcile."""

    stage: MachineDeletionStage | None = None  # None: it has only begun
    message: str = ""
    error: str = ""


NOT_DELETING = Deleting()


class ObservedMachine(NamedTuple):
    machine: Machine  # as this run leaves it, with its previous conditions
    cluster: Cluster
    bootstrap: ProviderState
    infrastructure: ProviderState
    node: NodeView
    now: float
    deleting: Deleting = NOT_DELETING
    outdated: Sequence[str] | None = None  # differences from its MachineDeployment; None if it belongs to none
    failed: bool = False  # a phase of this run ended in an error
    generation: int = 0  # generation after this run


class MachineReport(NamedTuple):
    conditions: list[Condition]
    phase: str
    look_again_at: float | None  # when time alone changes the status


def derive(seen: ObservedMachine) -> MachineReport:
    own = [
        _bootstrap(seen),
        _infrastructure(seen),
        *node_conditions(seen.machine, seen.cluster, seen.node, seen.now),
        condition("Updating", FALSE, "NotUpdating"),
        _deleting(seen),
    ]
    if seen.outdated is not None:
        own.append(_up_to_date(seen.machine, seen.outdated))
    ready = _ready(seen, own)
    available, at = _available(seen, ready)
    looks = [moment for moment in (at, *_milestones(seen)) if moment is not None and moment > seen.now]
    return MachineReport([*own, ready, available], _phase(seen.machine), min(looks, default=None))


def publish(status: dict[str, Any], seen: ObservedMachine) -> MachineReport:
    """Write the derived status into the raw status of the same Machine."""
    verdict = derive(seen)
    now = clock.rfc3339(seen.now)
    put(status, verdict.conditions, generation=seen.generation, now=now)
    if status.get("phase") != verdict.phase:
        status.update(phase=verdict.phase, lastUpdated=now)
    if not seen.failed and seen.generation:
        status["observedGeneration"] = seen.generation
    return verdict


# ---- providers ---------------------------------------------------------------------------------------------------


def _bootstrap(seen: ObservedMachine) -> Condition:
    machine = seen.machine
    if machine.spec.bootstrap.config_ref is None:
        return condition("BootstrapConfigReady", TRUE, "DataSecretProvided")
    ready = machine.status.initialization.bootstrap_data_secret_created
    return _mirrored("BootstrapConfigReady", seen.bootstrap, machine, ready)


def _infrastructure(seen: ObservedMachine) -> Condition:
    ready = seen.machine.status.initialization.infrastructure_provisioned
    return _mirrored("InfrastructureReady", seen.infrastructure, seen.machine, ready)


def _mirrored(target: str, provider: ProviderState, machine: Machine, ready: bool) -> Condition:
    if provider.error:
        return msgspec.structs.replace(internal_error(target), message=provider.error)
    if not provider.present:
        deleting = machine.metadata.deleting
        return mirror_of_absent(target, kind=provider.kind, existed=ready, owner="Machine", owner_deleting=deleting)
    if provider.malformed:
        return condition(target, UNKNOWN, "InvalidConditionReported", provider.malformed)
    waiting_for = f"{provider.kind} {provider.flag} is false"
    return mirror(target, provider.ready, like="Ready", ready=ready, waiting_for=waiting_for)


# ---- state of the Machine ----------------------------------------------------------------------------------------


def _deleting(seen: ObservedMachine) -> Condition:
    if not seen.machine.metadata.deleting:
        return condition("Deleting", FALSE, "NotDeleting")
    if seen.deleting.error:
        return condition("Deleting", TRUE, "InternalError", seen.deleting.error)
    stage = seen.deleting.stage
    return condition("Deleting", TRUE, stage.value if stage else "Deleting", seen.deleting.message)


def _up_to_date(machine: Machine, differences: Sequence[str]) -> Condition:
    if differences:
        return condition("UpToDate", FALSE, "NotUpToDate", "\n".join(f"* {each}" for each in differences))
    info, wanted = machine.status.node_info, machine.spec.version
    # Upstream's rule too: a Node that reports no version has not been asked about it.
    if info is not None and wanted and info.kubelet_version and info.kubelet_version != wanted:
        text = f"* Node runs kubelet {info.kubelet_version}, {wanted} required"
        return condition("UpToDate", FALSE, "Updating", text)
    return condition("UpToDate", TRUE, "UpToDate")


def _ready(seen: ObservedMachine, own: Iterable[Condition]) -> Condition:
    gates = seen.machine.spec.readiness_gates
    by_type = {one.type: one for one in (*seen.machine.status.conditions, *own)}
    if seen.machine.metadata.deleting:
        by_type["Deleting"] = _compressed(seen, by_type["Deleting"])
    types = [
        "Deleting",
        "Updating",
        "BootstrapConfigReady",
        "InfrastructureReady",
        "NodeHealthy",
        "HealthCheckSucceeded",
    ]
    return summary(
        "Ready",
        by_type.values(),
        [*types, *(gate.condition_type for gate in gates)],
        optional=("HealthCheckSucceeded",),
        negative=negative_with(gates),
    )


def _compressed(seen: ObservedMachine, deleting: Condition) -> Condition:
    """Return a short Deleting condition for readers of whole clusters: the stage, and what to check if it takes
    long."""
    text = f"Machine deletion in progress, stage: {deleting.reason}"
    if _older(seen.machine.metadata.deletion_timestamp, LONG_DELETION_SECONDS, seen.now):
        text = f"Machine deletion in progress since more than 15m, stage: {deleting.reason}"
    draining = deleting.reason == MachineDeletionStage.DRAIN
    if draining and _older(seen.machine.status.deletion.node_drain_start_time, LONG_DRAIN_SECONDS, seen.now):
        text += ", delayed by Pods that do not leave the Node; the Deleting condition names them"
    return msgspec.structs.replace(deleting, message=text)


def _milestones(seen: ObservedMachine) -> list[float]:
    """Return the times at which the deletion and the drain begin to count as long."""
    deletion, drain = seen.machine.metadata.deletion_timestamp, seen.machine.status.deletion.node_drain_start_time
    found = [clock.parse(deletion) + LONG_DELETION_SECONDS + 1] if deletion else []
    return found + ([clock.parse(drain) + LONG_DRAIN_SECONDS + 1] if drain else [])


def _older(moment: str | None, seconds: float, now: float) -> bool:
    return moment is not None and now - clock.parse(moment) > seconds


def _available(seen: ObservedMachine, ready: Condition) -> tuple[Condition, float | None]:
    if ready.status != TRUE:
        return condition("Available", FALSE, "NotReady"), None
    before = find(seen.machine.status.conditions, "Ready")
    already = before is not None and before.status == TRUE and before.last_transition_time
    since = clock.parse(already) if already else float(int(seen.now))
    at = since + seen.machine.spec.min_ready_seconds
    if at > seen.now:
        return condition("Available", FALSE, "WaitingForMinReadySeconds", f"Available at {clock.rfc3339(at)}"), at
    return condition("Available", TRUE, "Available"), None


def _phase(machine: Machine) -> str:
    initialization = machine.status.initialization
    if machine.metadata.deleting:
        return "Deleting"
    if initialization.infrastructure_provisioned:
        return "Running" if machine.status.node_ref is not None else "Provisioned"
    return "Provisioning" if initialization.bootstrap_data_secret_created else "Pending"
