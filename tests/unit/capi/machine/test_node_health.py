"""NodeReady and NodeHealthy: what is said of a Node that is there, missing, gone, or out of reach."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from remuda.capi.machine.node_health import GRACE_SECONDS, Link, NodeView, connection_lost_at, node_conditions
from remuda.capi.machine.workload import Node
from remuda.capi.types import Cluster, Machine
from remuda.kube.clock import rfc3339
from remuda.kube.objects import Condition
from tests.unit.capi.machine.objects import HEALTHY, NOW, cluster, deleting, machine, node

UP = Link(connected=True, last_success=NOW)


def both(found: list[Condition]) -> tuple[str, str, str]:
    """What the two say, where they say the same."""
    ready, healthy = found
    assert (ready.type, healthy.type) == ("NodeReady", "NodeHealthy")
    assert (ready.status, ready.reason, ready.message) == (healthy.status, healthy.reason, healthy.message)
    return ready.status, ready.reason, ready.message


def seen(
    mine: Machine | None = None, view: NodeView | None = None, *, where: Cluster | None = None, now: float = NOW
) -> Any:
    return node_conditions(mine or machine(), where or cluster(), view or NodeView(UP), now)


def with_node(node: Node) -> tuple[Condition, Condition]:
    ready, healthy = seen(view=NodeView(UP, node))
    return ready, healthy


def known(**changes: Any) -> Machine:
    conditions = [
        {"type": type, "status": "True", "reason": type, "message": "", **changes}
        for type in ("NodeReady", "NodeHealthy")
    ]
    return machine(status={"conditions": conditions, "nodeRef": {"name": "n-1"}})


def test_healthy_node_is_ready_and_healthy() -> None:
    ready, healthy = with_node(node(**HEALTHY))
    assert (ready.status, ready.reason, ready.message) == ("True", "NodeReady", "")
    assert (healthy.status, healthy.reason, healthy.message) == ("True", "NodeHealthy", "")


def test_node_ready_keeps_transition_time_of_node() -> None:
    raw = {
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    }
    ready, _ = with_node(msgspec.convert(raw, Node))
    assert ready.last_transition_time == "2026-01-01T00:00:00Z"


def test_unready_node_message_is_reported() -> None:
    raw = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "X", "message": "no network"}]}}
    ready, healthy = with_node(msgspec.convert(raw, Node))
    assert (ready.status, ready.reason, ready.message) == ("False", "NodeNotReady", "* Node.Ready: no network")
    assert (healthy.status, healthy.reason) == ("False", "NodeNotHealthy")
    assert healthy.message.startswith("* Node.Ready: no network\n* Node.MemoryPressure: Condition not yet reported")


def test_disk_pressure_makes_ready_node_unhealthy() -> None:
    ready, healthy = with_node(node(**{**HEALTHY, "DiskPressure": "True"}))
    assert ready.status == "True"
    assert (healthy.status, healthy.message) == ("False", "* Node.DiskPressure: Condition is True")


def test_silent_node_message_is_reported_once() -> None:
    conditions = [
        {"type": type, "status": "Unknown", "message": "Kubelet stopped posting node status."} for type in HEALTHY
    ]
    ready, healthy = with_node(msgspec.convert({"status": {"conditions": conditions}}, Node))
    assert (ready.status, ready.reason) == ("Unknown", "NodeReadyUnknown")
    assert (healthy.status, healthy.reason) == ("Unknown", "NodeHealthyUnknown")
    assert healthy.message == "* Node.AllConditions: Kubelet stopped posting node status."


def test_node_without_conditions_is_unknown() -> None:
    ready, healthy = with_node(node())
    assert (ready.status, ready.reason) == ("Unknown", "NotYetReported")
    assert ready.message == "* Node.Ready: Condition not yet reported"
    assert healthy.message == "* Node.AllConditions: Condition not yet reported"


def test_unrecognized_condition_status_is_unknown() -> None:
    ready, healthy = with_node(node(**{**HEALTHY, "Ready": "Perhaps"}))
    assert (ready.status, healthy.status) == ("Unknown", "Unknown")


@pytest.mark.parametrize(
    ("provisioned", "what"), [(False, "infrastructureProvisioned"), (True, "controlPlaneInitialized")]
)
def test_node_health_waits_for_cluster_initialization(provisioned: bool, what: str) -> None:
    raw = {"metadata": {"name": "c"}, "status": {"initialization": {"infrastructureProvisioned": provisioned}}}
    where = msgspec.convert(raw, Cluster)
    status, reason, message = both(seen(view=NodeView(Link()), where=where))
    assert (status, reason) == ("Unknown", "InspectionFailed")
    assert what in message


def test_missing_cluster_is_named_in_node_conditions() -> None:
    assert both(seen(where=Cluster())) == ("Unknown", "InspectionFailed", "Waiting for Cluster c to exist")


def test_missing_node_message_names_provider_id() -> None:
    assert both(seen(machine(providerID="test://m-1"))) == (
        "Unknown",
        "InspectionFailed",
        "Waiting for a Node with spec.providerID test://m-1 to exist",
    )
    assert "Waiting for TestMachine m-1 to report spec.providerID" in both(seen())[2]


def test_unclaimed_nodes_are_listed_likeliest_first() -> None:
    near, far = node("near", provider_id="k3s://m-1"), node("far", provider_id="other")
    strays = [far, near, node("z"), node("m-1", provider_id="other")]
    message = both(seen(machine(providerID="test://m-1"), NodeView(UP, unclaimed=strays)))[2]
    assert message.endswith(
        "Nodes without a Machine: m-1 (spec.providerID other), z (spec.providerID not set),"
        " near (spec.providerID k3s://m-1), ..."
    )


def test_up_to_three_unclaimed_nodes_are_listed() -> None:
    strays = [node("a"), node("b"), node("c")]
    assert both(seen(machine(providerID="x"), NodeView(UP, unclaimed=strays)))[2].endswith(
        "c (spec.providerID not set)"
    )


def test_deleted_node_is_reported_as_node_deleted() -> None:
    status = {"nodeRef": {"name": "n-1"}}
    gone = both(seen(machine(status=status)))
    assert gone == ("False", "NodeDeleted", "Node n-1 has been deleted while the Machine still exists")
    assert both(seen(deleting(status=status)))[2] == "Node n-1 has been deleted"


def test_machine_deleted_before_node_reports_node_does_not_exist() -> None:
    assert both(seen(deleting()))[:2] == ("Unknown", "NodeDoesNotExist")


def test_node_lookup_error_is_reported() -> None:
    assert both(seen(view=NodeView(UP, error="nodes is forbidden"))) == (
        "Unknown",
        "InternalError",
        "nodes is forbidden",
    )


def test_unestablished_connection_is_reported_as_connection_down() -> None:
    assert both(seen(view=NodeView(Link(failures=4))))[1:] == (
        "ConnectionDown",
        "Remote connection not established yet",
    )
    assert "never been established" in both(seen(view=NodeView(Link(failures=5))))[2]


def test_short_outage_keeps_node_conditions() -> None:
    down = NodeView(Link(last_success=NOW - GRACE_SECONDS))
    assert [one.status for one in seen(known(), down)] == ["True", "True"]


def test_long_outage_reports_connection_down_with_last_success() -> None:
    down = NodeView(Link(last_success=NOW - GRACE_SECONDS - 1))
    status, reason, message = both(seen(known(), down))
    assert (status, reason) == ("Unknown", "ConnectionDown")
    assert message.endswith(rfc3339(NOW - GRACE_SECONDS - 1))


def test_outage_without_previous_conditions_reports_connection_down() -> None:
    assert both(seen(view=NodeView(Link(last_success=NOW - 10, failures=3))))[1] == "ConnectionDown"


def test_cluster_wait_reason_is_kept_until_first_connection_attempt() -> None:
    waiting = seen(where=cluster(ready=False), view=NodeView(Link()))
    raw = [{"type": one.type, "status": one.status, "reason": one.reason, "message": one.message} for one in waiting]
    mine = machine(status={"conditions": raw})
    assert both(seen(mine, NodeView(Link())))[1] == "InspectionFailed"
    assert both(seen(mine, NodeView(Link(failures=1))))[1] == "ConnectionDown"


def test_connection_loss_counts_from_control_plane_initialization() -> None:
    initialized = {"type": "ControlPlaneInitialized", "status": "True", "lastTransitionTime": rfc3339(NOW - 50)}
    where = msgspec.convert({"status": {"conditions": [initialized]}}, Cluster)
    assert connection_lost_at(where, Link()) == NOW - 50
    assert connection_lost_at(where, Link(last_success=NOW - 10)) == NOW - 10
    assert connection_lost_at(cluster(), Link()) is None
