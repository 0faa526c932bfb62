"""Conditions NodeReady and NodeHealthy of a Machine, also while the Node cannot be read.

A short loss of the connection changes nothing: the last known state stands until the grace period is over, so that
short outages of a workload cluster neither write nor remediate anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from remuda.capi.conditions import NOT_YET_REPORTED
from remuda.capi.machine.workload import Node
from remuda.capi.types import Cluster, Machine
from remuda.kube import clock
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN, condition, find
from remuda.kube.objects import Condition

NODE_READY, NODE_HEALTHY = "NodeReady", "NodeHealthy"

# How long the last known state of Nodes stands while their cluster does not answer.
# Upstream's default (--remote-conditions-grace-period).
GRACE_SECONDS = 300.0
# After so many failed attempts, a first connection is reported as down instead of "not established yet".
_FAILURES_AT_FIRST = 5

_NO_INFRASTRUCTURE = "Waiting for Cluster status.initialization.infrastructureProvisioned to be true"
_NO_CONTROL_PLANE = "Waiting for Cluster status.initialization.controlPlaneInitialized to be true"
_NODE_CONDITIONS = {"Ready": TRUE, "MemoryPressure": FALSE, "DiskPressure": FALSE, "PIDPressure": FALSE}
_NODES_SHOWN = 3


class Link(NamedTuple):
    """State of the connection to the workload cluster."""

    connected: bool = False
    last_success: float | None = None
    failures: int = 0
    error: str = ""


class NodeView(NamedTuple):
    """Facts known about the Node in this reconcile."""

    link: Link
    node: Node | None = None
    error: str = ""
    unclaimed: Sequence[Node] = ()  # Nodes without a Machine: one of them may be the missing Node


def node_conditions(machine: Machine, cluster: Cluster, view: NodeView, now: float) -> list[Condition]:
    """Return both conditions. A condition that keeps its state is returned unchanged."""
    waiting = _cluster_not_ready(machine, cluster)
    if waiting:
        return _both(UNKNOWN, "InspectionFailed", waiting)
    if not view.link.connected:
        return _out_of_reach(machine, cluster, view.link, now)
    if view.error:
        return _both(UNKNOWN, "InternalError", view.error)
    if view.node is not None:
        return [_ready(view.node), _healthy(view.node)]
    if machine.status.node_ref is not None:
        return _node_gone(machine, machine.status.node_ref.name)
    if machine.metadata.deleting:
        return _both(UNKNOWN, "NodeDoesNotExist", "Node does not exist")
    return _both(UNKNOWN, "InspectionFailed", _awaited(machine, view.unclaimed))


def connection_lost_at(cluster: Cluster, link: Link) -> float | None:
    """Return the time since when Nodes are unknown: the last successful probe, or the initialization of the control
    plane if that is later."""
    initialized = find(cluster.status.conditions, "ControlPlaneInitialized")
    since = clock.parse(initialized.last_transition_time) if initialized and initialized.status == TRUE else None
    return max((moment for moment in (link.last_success, since) if moment is not None), default=None)


def _cluster_not_ready(machine: Machine, cluster: Cluster) -> str:
    if not cluster.metadata.name:
        return f"Waiting for Cluster {machine.spec.cluster_name} to exist"
    if not cluster.status.initialization.infrastructure_provisioned:
        return _NO_INFRASTRUCTURE
    if not cluster.status.initialization.control_plane_initialized:
        return _NO_CONTROL_PLANE
    return ""


def _out_of_reach(machine: Machine, cluster: Cluster, link: Link, now: float) -> list[Condition]:
    present = [find(machine.status.conditions, type) for type in (NODE_READY, NODE_HEALTHY)]
    standing = [found for found in present if found is not None and not _is_overtaken(found, link)]
    lost = connection_lost_at(cluster, link)
    if lost is not None and now - lost > GRACE_SECONDS:
        return _both(UNKNOWN, "ConnectionDown", _last_answer(link))
    if len(standing) == len(present):
        return standing
    if link.last_success is None and link.failures < _FAILURES_AT_FIRST:
        return _both(UNKNOWN, "ConnectionDown", "Remote connection not established yet")
    return _both(UNKNOWN, "ConnectionDown", _last_answer(link))


def _is_overtaken(found: Condition, link: Link) -> bool:
    """Return whether a condition that waits for the Cluster is obsolete: a connection was attempted since, and
    failed."""
    return found.message in (_NO_INFRASTRUCTURE, _NO_CONTROL_PLANE) and link.failures > 0


def _last_answer(link: Link) -> str:
    if link.last_success is None:
        return "Remote connection down: it has never been established"
    return f"Remote connection down: last successful probe at {clock.rfc3339(link.last_success)}"


def _node_gone(machine: Machine, name: str) -> list[Condition]:
    ending = "" if machine.metadata.deleting else " while the Machine still exists"
    return _both(FALSE, "NodeDeleted", f"Node {name} has been deleted{ending}")


def _awaited(machine: Machine, unclaimed: Sequence[Node]) -> str:
    if not machine.spec.provider_id:
        return f"Waiting for {machine.spec.infrastructure_ref} to report spec.providerID"
    text = f"Waiting for a Node with spec.providerID {machine.spec.provider_id} to exist"
    return f"{text}; Nodes without a Machine: {_candidates(machine, unclaimed)}" if unclaimed else text


def _candidates(machine: Machine, nodes: Sequence[Node]) -> str:
    """Return the likeliest candidates first: named as the Machine, without a providerID, or with a similar one."""

    def likeness(node: Node) -> tuple[bool, bool, int, str]:
        shared = _common_ending(node.spec.provider_id, machine.spec.provider_id)
        named = node.metadata.name == machine.metadata.name
        return not named, bool(node.spec.provider_id), -shared, node.metadata.name

    shown = [
        f"{node.metadata.name} (spec.providerID {node.spec.provider_id or 'not set'})"
        for node in sorted(nodes, key=likeness)[:_NODES_SHOWN]
    ]
    return ", ".join(shown) + (", ..." if len(nodes) > _NODES_SHOWN else "")


def _common_ending(one: str, other: str) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[-1 - length] == other[-1 - length]:
        length += 1
    return length


def _ready(node: Node) -> Condition:
    """Return the Node's own condition, with its own time."""
    found = node.condition("Ready")
    if found is None:
        # Upstream's reason is NodeReadyUnknown here too. That is a Node whose kubelet has fallen silent, and health.py
        # has to tell the two apart.
        return condition(NODE_READY, UNKNOWN, NOT_YET_REPORTED, "* Node.Ready: Condition not yet reported")
    reason = {TRUE: "NodeReady", FALSE: "NodeNotReady"}.get(found.status, "NodeReadyUnknown")
    message = "" if found.status == TRUE else f"* Node.Ready: {found.message or found.reason}"
    return Condition(
        type=NODE_READY,
        status=found.status if found.status in (TRUE, FALSE) else UNKNOWN,
        reason=reason,
        message=message,
        last_transition_time=found.last_transition_time or "",
    )


def _healthy(node: Node) -> Condition:
    texts: dict[str, str] = {}
    violated = False
    for type, good in _NODE_CONDITIONS.items():
        found = node.condition(type)
        if found is None:
            texts[type] = "Condition not yet reported"
        elif found.status != good:
            texts[type] = found.message or found.reason or f"Condition is {found.status}"
            violated = violated or found.status in (TRUE, FALSE)
    if not texts:
        return condition(NODE_HEALTHY, TRUE, "NodeHealthy")
    message = "\n".join(f"* Node.{type}: {text}" for type, text in texts.items())
    if len(texts) == len(_NODE_CONDITIONS) and len(set(texts.values())) == 1:
        message = f"* Node.AllConditions: {texts['Ready']}"
    if violated:
        return condition(NODE_HEALTHY, FALSE, "NodeNotHealthy", message)
    return condition(NODE_HEALTHY, UNKNOWN, "NodeHealthyUnknown", message)


def _both(status: str, reason: str, message: str) -> list[Condition]:
    return [condition(type, status, reason, message) for type in (NODE_READY, NODE_HEALTHY)]
