"""Nodes without a Machine, and since when a Machine is not reconciled."""

from __future__ import annotations

from remuda.capi.machine.workload import Node, NodeSpec, NodeStatus
from remuda.capi.types import Machine
from remuda.capi.types.machine import MachineSpec, MachineStatus
from remuda.kube import clock
from remuda.kube.objects import Condition, ObjectMeta
from remuda.providers.controlplane.hosts import ETCD_NODE, host, orphans
from remuda.providers.controlplane.planner.observation import Orphan
from remuda.providers.shared import names
from remuda.providers.shared.distros.k3s import K3S

MACHINES = [Machine(metadata=ObjectMeta(name="m", uid="uid-m"), spec=MachineSpec(provider_id="sim://m"))]


def node(name: str, uid: str = "", *, ready: str = "Unknown", server: str = "", **labels: str) -> Node:
    owned = {names.NODE_MACHINE: uid} if uid else {}
    return Node(
        metadata=ObjectMeta(name=name, labels=labels | owned),
        spec=NodeSpec(provider_id=server),
        status=NodeStatus(conditions=[Condition(type="Ready", status=ready)]),
    )


def test_orphans_are_unready_nodes_of_deleted_machines() -> None:
    nodes = [
        node("orphan", "uid-gone"),
        node("member", "uid-gone", ready="False", **{ETCD_NODE: "true"}),
        node("ready", "uid-gone", ready="True"),
        node("owned", "uid-m"),
        node("moved", "uid-before-the-move", server="sim://m"),
        node("foreign"),
    ]
    assert orphans(nodes, MACHINES) == [Orphan("orphan", etcd=False), Orphan("member", etcd=True)]


def test_unsettled_since_comes_from_condition_or_creation() -> None:
    made, turned = "2026-01-02T03:00:00Z", "2026-01-02T03:04:05Z"
    for status, since in (("True", None), ("Unknown", turned), ("", made)):
        said = [Condition(type="Reconciled", status=status, last_transition_time=turned)] if status else []
        machine = Machine(metadata=ObjectMeta(name="m", creation_timestamp=made), status=MachineStatus(conditions=said))
        found = host(machine, None, None, None, K3S).unsettled_since
        assert found == (clock.parse(since) if since else None)
