"""Nodes without a Machine."""

from __future__ import annotations

from remuda.capi.machine.workload import Node, NodeSpec, NodeStatus
from remuda.capi.types import Machine
from remuda.capi.types.machine import MachineSpec
from remuda.kube.objects import Condition, ObjectMeta
from remuda.providers import names
from remuda.providers.controlplane.hosts import ETCD_NODE, orphans
from remuda.providers.controlplane.planner.observed import Orphan

MACHINES = [Machine(metadata=ObjectMeta(name="m", uid="uid-m"), spec=MachineSpec(provider_id="sim://m"))]


def node(name: str, uid: str = "", *, ready: str = "Unknown", server: str = "", **labels: str) -> Node:
    owned = {names.NODE_MACHINE: uid} if uid else {}
    return Node(
        metadata=ObjectMeta(name=name, labels=labels | owned),
        spec=NodeSpec(provider_id=server),
        status=NodeStatus(conditions=[Condition(type="Ready", status=ready)]),
    )


def test_an_orphan_has_had_a_machine_and_is_not_ready() -> None:
    nodes = [
        node("orphan", "uid-gone"),
        node("member", "uid-gone", ready="False", **{ETCD_NODE: "true"}),
        node("ready", "uid-gone", ready="True"),
        node("owned", "uid-m"),
        node("moved", "uid-before-the-move", server="sim://m"),
        node("foreign"),
    ]
    assert orphans(nodes, MACHINES) == [Orphan("orphan", etcd=False), Orphan("member", etcd=True)]
