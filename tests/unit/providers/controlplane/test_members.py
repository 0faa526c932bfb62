"""The last look before a member of etcd is asked to leave."""

from __future__ import annotations

import pytest

from remuda.capi.machine.workload import Node, NodeStatus
from remuda.kube.objects import Condition, ObjectMeta
from remuda.providers.controlplane.nodes import majority_at_risk
from remuda.providers.shared.distros.k3s import K3S

REMOVE, REMOVED = "etcd.k3s.cattle.io/remove", "etcd.k3s.cattle.io/removed-node-name"


def node(name: str, *, ready: bool = True, voter: bool = True, **annotations: str) -> Node:
    states = {"Ready": ready, "EtcdIsVoter": voter}
    conditions = [Condition(type=type, status=str(holds)) for type, holds in states.items()]
    said = {REMOVE if key == "remove" else REMOVED: value for key, value in annotations.items()}
    return Node(metadata=ObjectMeta(name=name, annotations=said), status=NodeStatus(conditions=conditions))


A, B, C, D = (node(name) for name in "abcd")
SICK_B = node("b", ready=False)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([A, B, C], ""),
        ([A, B], ""),
        ([A, B, C, D], ""),
        ([A], "no other member"),
        ([A, SICK_B], "only 0 of 1 other members are healthy"),
        ([A, SICK_B, C], "are healthy, 2 must be; unhealthy: b"),
        ([A, SICK_B, C, D], ""),
        ([A, node("b", voter=False), C], ""),
        ([A, node("b", voter=False)], "no other member"),
        ([A, B, node("c", remove="true")], "Node c is leaving"),
        ([A, B, node("c", remove="true", removed="c-1")], ""),
        # One that is gone does not wait for one that it may be keeping from leaving.
        ([SICK_B, A, node("c", remove="true")], ""),
        ([SICK_B, node("c", remove="true")], "no other member"),
        ([SICK_B, A, D, node("c", ready=False, remove="true")], ""),
        ([SICK_B, A, node("d", ready=False), node("c", remove="true")], "are healthy, 2 must be; unhealthy: d"),
    ],
)
def test_member_leaves_only_if_healthy_majority_stays(nodes: list[Node], why: str) -> None:
    found = majority_at_risk(nodes, nodes[0], K3S)
    assert found == "" if not why else why in found
