"""Stages of the deletion of a Machine, and the reasons to skip a stage. No I/O.

Stages run in the order of `MachineDeletionStage`. A stage that does not apply is skipped with a reason; one that
applies runs until it waits for nothing. Only the start times of waits are stored between two reconciles, so a deletion
completes from any state through the same stages. Invariants: pre-terminate hooks are respected even if other stages are
skipped, the server is deleted before its bootstrap object, and the Node is deleted last.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from remuda.capi import names
from remuda.capi.types import Machine
from remuda.kube import clock, conditions

ControlPlane = Literal["none", "missing", "present", "deleting", "external"]

# Default of nodeDeletionTimeoutSeconds.
NODE_DELETION_SECONDS = 10


class MachineDeletionStage(StrEnum):
    """Stage of a deletion. Each value is the reason of the Deleting condition during the stage."""

    PRE_DRAIN_HOOK = "WaitingForPreDrainHook"
    DRAIN = "DrainingNode"
    VOLUMES = "WaitingForVolumeDetach"
    PRE_TERMINATE_HOOK = "WaitingForPreTerminateHook"
    INFRASTRUCTURE = "WaitingForInfrastructureDeletion"
    BOOTSTRAP = "WaitingForBootstrapDeletion"
    NODE = "DeletingNode"
    COMPLETED = "DeletionCompleted"


MEANING = {
    MachineDeletionStage.PRE_DRAIN_HOOK: "the owners of pre-drain hooks finish their work while the Node still runs",
    MachineDeletionStage.DRAIN: "the controller cordons the Node and evicts its Pods",
    MachineDeletionStage.VOLUMES: "volumes are detached from the Node, so that other Nodes can use them",
    MachineDeletionStage.PRE_TERMINATE_HOOK: (
        "the owners of pre-terminate hooks finish their work while the server still exists"
    ),
    MachineDeletionStage.INFRASTRUCTURE: "the infrastructure provider deletes the server",
    MachineDeletionStage.BOOTSTRAP: "the bootstrap provider deletes the bootstrap object",
    MachineDeletionStage.NODE: "the controller deletes the Node object",
    MachineDeletionStage.COMPLETED: "the controller removes the finalizer of the Machine",
}


class DeletionFacts(msgspec.Struct, frozen=True, kw_only=True):
    machine: Machine
    now: float
    cluster_deleting: bool = False
    node: str = ""  # its name; also if it was found by providerID only
    node_unreachable: bool = False
    control_plane: ControlPlane = "none"
    control_plane_left: bool = True  # a control plane Machine that is not being deleted
    infrastructure_going: bool = False  # deleted or being deleted


def skipped(stage: MachineDeletionStage, facts: DeletionFacts) -> str:
    """Return the reason why this stage has nothing to do or wait for; empty if it may have."""
    match stage:
        case MachineDeletionStage.PRE_DRAIN_HOOK:
            return node_kept(facts) or _no_hooks(facts.machine, names.PRE_DRAIN_HOOK)
        case MachineDeletionStage.DRAIN:
            return node_kept(facts) or _no_drain(facts)
        case MachineDeletionStage.VOLUMES:
            return node_kept(facts) or _no_waiting_for_volumes(facts)
        # Not subject to `node_kept`: these hooks guard the server, whatever becomes of its Node.
        case MachineDeletionStage.PRE_TERMINATE_HOOK:
            return _no_hooks(facts.machine, names.PRE_TERMINATE_HOOK)
        case MachineDeletionStage.NODE:
            return node_kept(facts)
        case _:
            return ""


def node_kept(facts: DeletionFacts) -> str:
    """Return the reason why the Node is neither drained nor deleted; empty if it may be."""
    if facts.cluster_deleting:
        return "the Cluster is being deleted"
    if not facts.node:
        return "the Machine has no Node"
    if facts.control_plane == "deleting":
        return "the control plane is being deleted"
    if facts.control_plane != "external" and not facts.control_plane_left:
        return "no control plane Machine is left to serve the API"
    return ""


def hooks(machine: Machine, prefix: str) -> list[str]:
    return sorted(key for key in machine.metadata.annotations if key.startswith(prefix))


def awaits_last_hooks(machine: Machine) -> bool:
    """Return whether only pre-terminate hooks delay the deletion of the server. Cores before v1.14 report this by the
    condition alone."""
    if machine.status.deletion.wait_for_pre_terminate_hook_start_time is not None:
        return True
    deleting = conditions.find(machine.status.conditions, "Deleting")
    return (
        deleting is not None
        and deleting.status == conditions.TRUE
        and deleting.reason == MachineDeletionStage.PRE_TERMINATE_HOOK
    )


def deadline(started: str | None, limit_seconds: int | None) -> float | None:
    """Return the time at which waiting ends; None if it has not begun or has no limit."""
    if not started or not limit_seconds:  # 0 means no limit, as upstream
        return None
    return clock.parse(started) + limit_seconds


def node_deletion_limit(machine: Machine) -> int:
    """Return nodeDeletionTimeoutSeconds or its default; 0 means no limit."""
    limit = machine.spec.deletion.node_deletion_timeout_seconds
    return NODE_DELETION_SECONDS if limit is None else limit


def drain_deadline(machine: Machine) -> float | None:
    return deadline(machine.status.deletion.node_drain_start_time, machine.spec.deletion.node_drain_timeout_seconds)


def volumes_deadline(machine: Machine) -> float | None:
    started = machine.status.deletion.wait_for_node_volume_detach_start_time
    return deadline(started, machine.spec.deletion.node_volume_detach_timeout_seconds)


def _no_hooks(machine: Machine, prefix: str) -> str:
    return "" if hooks(machine, prefix) else f"no {prefix} annotation"


def _no_drain(facts: DeletionFacts) -> str:
    if names.EXCLUDE_NODE_DRAINING in facts.machine.metadata.annotations:
        return f"the {names.EXCLUDE_NODE_DRAINING} annotation is set"
    if _passed(drain_deadline(facts.machine), facts.now):
        return "nodeDrainTimeoutSeconds has passed"
    return _too_late(facts)


def _no_waiting_for_volumes(facts: DeletionFacts) -> str:
    if names.EXCLUDE_WAIT_FOR_VOLUME_DETACH in facts.machine.metadata.annotations:
        return f"the {names.EXCLUDE_WAIT_FOR_VOLUME_DETACH} annotation is set"
    if _passed(volumes_deadline(facts.machine), facts.now):
        return "nodeVolumeDetachTimeoutSeconds has passed"
    if facts.node_unreachable:
        return "the Node is unreachable, so its kubelet cannot detach volumes"
    return _too_late(facts)


def _too_late(facts: DeletionFacts) -> str:
    # Never go back to an earlier stage: the owners of pre-terminate hooks have begun their work, for example to
    # remove the server's member from etcd.
    if facts.machine.status.deletion.wait_for_pre_terminate_hook_start_time:
        return "the deletion has already reached the pre-terminate hooks"
    return "the server is already deleted or being deleted" if facts.infrastructure_going else ""


def _passed(moment: float | None, now: float) -> bool:
    return moment is not None and now >= moment
