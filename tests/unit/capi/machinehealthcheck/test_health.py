from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import names
from remuda.capi.machinehealthcheck.health import Facts, Healthy, NodeFacts, Pending, Unhealthy, judge
from remuda.capi.types import Machine
from remuda.capi.types.machinehealthcheck import HealthChecks, UnhealthyMachineCondition, UnhealthyNodeCondition
from remuda.kube.objects import Condition
from tests.unit.capi.machinehealthcheck.objects import T0, cluster, condition, machine, running

NODE_CHECKS = HealthChecks(
    unhealthy_node_conditions=[
        UnhealthyNodeCondition(type="Ready", status="Unknown", timeout_seconds=300),
        UnhealthyNodeCondition(type="Ready", status="False", timeout_seconds=90),
        UnhealthyNodeCondition(type="DiskPressure", status="True", timeout_seconds=0),
    ]
)
MACHINE_CHECKS = HealthChecks(
    unhealthy_machine_conditions=[
        UnhealthyMachineCondition(type="NodeReady", status="Unknown", timeout_seconds=300),
        UnhealthyMachineCondition(type="example.com/Disk", status="False", timeout_seconds=60),
    ]
)
NO_NODE = Facts(machine(), cluster(), None, nodes_readable=True)


def verdict(facts: Facts, checks: HealthChecks = NODE_CHECKS, now: float = 1000) -> Healthy | Unhealthy | Pending:
    return judge(facts, checks, T0 + now)


def test_machine_with_good_node_is_healthy() -> None:
    assert verdict(running(condition("Ready"))) == Healthy()
    assert verdict(running()) == Healthy()


def test_expired_node_condition_makes_machine_unhealthy() -> None:
    facts = running(condition("Ready", "Unknown", since=100, reason="NodeStatusUnknown"))
    assert verdict(facts, now=399.999) == Pending("it may become unhealthy", T0 + 400)
    assert verdict(facts, now=400) == Unhealthy(
        "UnhealthyNode", "Node n: Ready has been Unknown (NodeStatusUnknown) for more than 5m"
    )


def test_each_condition_status_has_its_own_timeout() -> None:
    assert verdict(running(condition("Ready", "False", since=0)), now=89) == Pending("it may become unhealthy", T0 + 90)
    found = verdict(running(condition("Ready", "False", since=0)), now=90)
    assert found == Unhealthy("UnhealthyNode", "Node n: Ready has been False for more than 1m30s")


def test_all_unhealthy_conditions_are_listed() -> None:
    facts = running(condition("Ready", "False"), condition("DiskPressure"))
    assert verdict(facts) == Unhealthy(
        "UnhealthyNode",
        "* Node n: Ready has been False for more than 1m30s\n* Node n: DiskPressure has been True for more than 0s",
    )


def test_earliest_expiry_is_the_next_check() -> None:
    checks = HealthChecks(
        unhealthy_node_conditions=[
            UnhealthyNodeCondition(type="Ready", status="False", timeout_seconds=7200),
            UnhealthyNodeCondition(type="DiskPressure", status="True", timeout_seconds=60),
        ]
    )
    facts = running(condition("Ready", "False", since=900), condition("DiskPressure", since=980))
    assert verdict(facts, checks) == Pending("it may become unhealthy", T0 + 1040)


def test_expired_machine_condition_counts_without_node() -> None:
    sick = machine(condition("example.com/Disk", "False", since=900, reason="Smoke"))
    facts = Facts(sick, cluster(), None, nodes_readable=True)
    assert verdict(facts, MACHINE_CHECKS, now=960) == Unhealthy(
        "UnhealthyMachine",
        "* Machine: example.com/Disk has been False (Smoke) for more than 1m\n* No Node has appeared within 10m",
    )
    assert verdict(facts, MACHINE_CHECKS, now=550) == Pending("it may become unhealthy", T0 + 600)


def test_machine_condition_reason_precedes_node_condition_reason() -> None:
    checks = HealthChecks(
        unhealthy_machine_conditions=MACHINE_CHECKS.unhealthy_machine_conditions,
        unhealthy_node_conditions=NODE_CHECKS.unhealthy_node_conditions,
    )
    sick = machine(condition("example.com/Disk", "False"), node="n")
    found = verdict(running(condition("DiskPressure"), of=sick), checks)
    assert isinstance(found, Unhealthy)
    assert found.reason == "UnhealthyMachine"
    assert "DiskPressure" in found.message


def test_remediate_annotation_always_makes_machine_unhealthy() -> None:
    asked = machine(node="n", annotations={names.REMEDIATE_MACHINE: ""})
    unready = cluster(infrastructure=None, control_plane=None)
    for facts in (running(condition("Ready"), of=asked), Facts(asked, unready, None, nodes_readable=False)):
        found = verdict(facts)
        assert isinstance(found, Unhealthy)
        assert found.reason == "HasRemediateAnnotation"


def test_deleting_machine_is_not_judged() -> None:
    going = machine(node="n", deleting=True, annotations={names.REMEDIATE_MACHINE: ""})
    assert verdict(running(condition("DiskPressure"), of=going)) == Pending("it is being deleted")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (Facts(machine(), cluster(control_plane=None), None, False), "the control plane is not initialized"),
        (
            Facts(machine(control_plane=True), cluster(infrastructure=None), None, False),
            "the infrastructure of the Cluster is not ready",
        ),
    ],
)
def test_machine_of_uninitialized_cluster_is_pending(facts: Facts, why: str) -> None:
    assert verdict(facts, now=100_000) == Pending(why)


def test_control_plane_machine_is_judged_before_control_plane_initialization() -> None:
    first = Facts(machine(control_plane=True), cluster(control_plane=None), None, nodes_readable=False)
    assert verdict(first, now=599) == Pending("it may become unhealthy", T0 + 600)
    assert verdict(first, now=600) == Unhealthy("NodeStartupTimeout", "No Node has appeared within 10m")


def test_deleted_node_makes_machine_unhealthy_immediately() -> None:
    gone = Facts(machine(node="n"), cluster(), None, nodes_readable=True)
    assert verdict(gone, now=1) == Unhealthy("NodeDeleted", "Node n has been deleted while the Machine still exists")


def test_node_startup_timeout_counts_from_last_prerequisite() -> None:
    waits = [
        Facts(machine(created=300), cluster(), None, True),
        Facts(machine(), cluster(infrastructure=300), None, True),
        Facts(machine(), cluster(control_plane=300), None, True),
        Facts(machine(condition("InfrastructureReady", since=300)), cluster(), None, True),
    ]
    for facts in waits:
        assert verdict(facts, now=899) == Pending("it may become unhealthy", T0 + 900)
        assert verdict(facts, now=900) == Unhealthy("NodeStartupTimeout", "No Node has appeared within 10m")


def test_unready_infrastructure_does_not_extend_node_startup_timeout() -> None:
    broken = machine(condition("InfrastructureReady", "False", since=500))
    assert verdict(Facts(broken, cluster(), None, True), now=600).__class__ is Unhealthy


def test_node_startup_timeout_can_be_changed_or_disabled() -> None:
    assert verdict(NO_NODE, HealthChecks(node_startup_timeout_seconds=30), now=30) == Unhealthy(
        "NodeStartupTimeout", "No Node has appeared within 30s"
    )
    assert verdict(NO_NODE, HealthChecks(node_startup_timeout_seconds=0), now=1e6) == Pending("it has no Node")


def test_machine_with_unreadable_node_is_pending() -> None:
    for facts in (
        Facts(machine(node="n"), cluster(), None, nodes_readable=False),
        Facts(machine(), cluster(), None, nodes_readable=False),
        running(condition("Ready", "Unknown"), readable=False),
    ):
        assert verdict(facts, now=1e6) == Pending("its Node cannot be read")


def test_machine_with_unreadable_node_keeps_last_health_for_counting() -> None:
    for status, counts in (("True", True), ("False", False)):
        last = machine(condition("HealthCheckSucceeded", status), node="n")
        found = verdict(Facts(last, cluster(), None, nodes_readable=False))
        assert found == Pending("its Node cannot be read", counts_as_healthy=counts)


def test_connection_down_condition_does_not_make_machine_unhealthy() -> None:
    for reason, expected in (("ConnectionDown", Pending), ("NodeReadyUnknown", Unhealthy)):
        silent = machine(condition("NodeReady", "Unknown", reason=reason), node="n")
        found = verdict(Facts(silent, cluster(), None, nodes_readable=False), MACHINE_CHECKS, now=1e6)
        assert isinstance(found, expected), reason


def test_machine_conditions_count_while_nodes_are_unreadable() -> None:
    sick = machine(condition("example.com/Disk", "False", reason="Smoke"), node="n")
    assert verdict(Facts(sick, cluster(), None, nodes_readable=False), MACHINE_CHECKS) == Unhealthy(
        "UnhealthyMachine", "Machine: example.com/Disk has been False (Smoke) for more than 1m"
    )


@pytest.mark.parametrize("time", ["", "yesterday", "2026-01-02T03:04:05"])
def test_condition_without_valid_time_counts_from_machine_creation(time: str) -> None:
    timeless = Condition(type="Ready", status="False", last_transition_time=time)
    facts = running(timeless, of=machine(node="n", created=950))
    assert verdict(facts, now=1039) == Pending("it may become unhealthy", T0 + 1040)
    assert verdict(facts, now=1040).__class__ is Unhealthy


STATUSES = st.sampled_from(["True", "False", "Unknown"])
TIMES = st.integers(min_value=0, max_value=2000)


@st.composite
def anything(draw: st.DrawFn) -> Facts:
    def conditions(*types: str) -> list[Condition]:
        reasons = st.sampled_from(["", "ConnectionDown", "Broken"])
        return [condition(type, draw(STATUSES), since=draw(TIMES), reason=draw(reasons)) for type in types]

    of: Machine = machine(
        *conditions("NodeReady", "example.com/Disk", "InfrastructureReady", "HealthCheckSucceeded"),
        node=draw(st.sampled_from([None, "n"])),
        created=draw(TIMES),
        control_plane=draw(st.booleans()),
    )
    node = draw(st.sampled_from([None, NodeFacts("n", conditions("Ready", "DiskPressure"))]))
    times = st.none() | TIMES
    return Facts(of, cluster(infrastructure=draw(times), control_plane=draw(times)), node, draw(st.booleans()))


CHECKS = HealthChecks(
    node_startup_timeout_seconds=600,
    unhealthy_machine_conditions=MACHINE_CHECKS.unhealthy_machine_conditions,
    unhealthy_node_conditions=NODE_CHECKS.unhealthy_node_conditions,
)


@given(anything(), st.integers(min_value=0, max_value=5000))
def test_verdict_worsens_only_at_the_announced_time(facts: Facts, now: float) -> None:
    found = verdict(facts, CHECKS, now)
    later = verdict(facts, CHECKS, now + 3000)
    if isinstance(found, Unhealthy):
        assert isinstance(later, Unhealthy)
        assert later.reason in ("UnhealthyMachine", found.reason)
    elif isinstance(found, Pending) and found.check_at is not None:
        assert found.check_at > T0 + now
        assert verdict(facts, CHECKS, found.check_at - T0 - 0.001) == found
        assert isinstance(verdict(facts, CHECKS, found.check_at - T0), Unhealthy)
    else:
        assert later == found


@given(anything(), TIMES)
def test_unreadable_nodes_never_make_machine_unhealthy(facts: Facts, now: float) -> None:
    hidden = facts._replace(nodes_readable=False, cluster=cluster())
    found = verdict(hidden, CHECKS, now)
    assert found == verdict(hidden._replace(node=None), CHECKS, now)
    assert not isinstance(found, Healthy)
    if isinstance(found, Unhealthy):
        assert found.reason == "UnhealthyMachine"


def test_unhealthy_message_durations_are_human_readable() -> None:
    texts = {}
    for seconds in (0, 59, 60, 61, 3600, 3661, 7205):
        checks = HealthChecks(
            unhealthy_node_conditions=[UnhealthyNodeCondition(type="R", status="False", timeout_seconds=seconds)]
        )
        found = verdict(running(condition("R", "False")), checks, now=10_000)
        assert isinstance(found, Unhealthy)
        texts[seconds] = found.message.rpartition(" ")[2]
    assert texts == {0: "0s", 59: "59s", 60: "1m", 61: "1m1s", 3600: "1h", 3661: "1h1m1s", 7205: "2h5s"}
