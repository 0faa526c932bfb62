"""Short ways to say which Machine, Cluster and Node a test is about. Times are seconds of a clock that starts at T0."""

from __future__ import annotations

from remuda.capi import names
from remuda.capi.machinehealthcheck.health import Facts, NodeFacts
from remuda.capi.types import Cluster, Machine
from remuda.capi.types.cluster import ClusterStatus
from remuda.capi.types.machine import MachineStatus, NodeReference
from remuda.kube import clock
from remuda.kube.objects import Condition, ObjectMeta, OwnerReference

T0 = 1_800_000_000.0


def at(seconds: float) -> str:
    return clock.rfc3339(T0 + seconds)


def condition(type: str, status: str = "True", *, since: float = 0, reason: str = "", message: str = "") -> Condition:
    return Condition(type=type, status=status, reason=reason, message=message, last_transition_time=at(since))


def cluster(*, infrastructure: float | None = 0, control_plane: float | None = 0) -> Cluster:
    """Each since when, or None for not yet."""
    conditions = [
        condition(type, "False" if since is None else "True", since=since or 0)
        for type, since in (("InfrastructureReady", infrastructure), ("ControlPlaneInitialized", control_plane))
    ]
    return Cluster(metadata=ObjectMeta(namespace="ns", name="c"), status=ClusterStatus(conditions=conditions))


def machine(
    *conditions: Condition,
    name: str = "m",
    node: str | None = None,
    created: float = 0,
    control_plane: bool = False,
    deleting: bool = False,
    annotations: dict[str, str] | None = None,
    owner: OwnerReference | None = None,
) -> Machine:
    metadata = ObjectMeta(
        namespace="ns",
        name=name,
        creation_timestamp=at(created),
        deletion_timestamp=at(0) if deleting else None,
        labels={names.CONTROL_PLANE: ""} if control_plane else {},
        annotations=annotations or {},
        owner_references=[owner] if owner else (),
    )
    node_ref = NodeReference(name=node) if node else None
    return Machine(metadata=metadata, status=MachineStatus(conditions=conditions, node_ref=node_ref))


def running(*node_conditions: Condition, of: Machine | None = None, readable: bool = True) -> Facts:
    """A Machine whose Node is there."""
    return Facts(of or machine(node="n"), cluster(), NodeFacts("n", node_conditions), readable)
