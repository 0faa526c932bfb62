"""Whether a cluster is alive: by its API, its control plane and its Machines, and by how old each word of them is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import health
from remuda.capi.health import Evidence, HealthVerdict, judge
from remuda.capi.types import Machine, MachineInitialization, MachineStatus, NodeReference
from remuda.kube import clock
from remuda.kube.objects import Condition, ObjectMeta
from remuda.runtime.remote import Connection

NOW = clock.parse("2026-06-01T12:00:00Z")
LONG_AGO, JUST_NOW = "2026-01-01T00:00:00Z", "2026-06-01T11:59:00Z"
CONNECTED = Connection(connected=True, since=NOW - 999, last_success=NOW - 3, error="")


def since(type: str, status: str, reason: str, message: str = "") -> Condition:
    return Condition(type=type, status=status, reason=reason, message=message, last_transition_time=JUST_NOW)


def machine(name: str, *said: Condition, made: str = LONG_AGO, server: bool = True, **more: Any) -> Machine:
    metadata = ObjectMeta(name=name, namespace="ns", creation_timestamp=made, **more)
    initialization = MachineInitialization(infrastructure_provisioned=server)
    node = NodeReference(name=f"node-{name}")
    return Machine(
        metadata=metadata, status=MachineStatus(conditions=said, initialization=initialization, node_ref=node)
    )


WELL = machine("well", since("InfrastructureReady", "True", "Ready"), since("NodeReady", "True", "NodeReady"))
STALLED = since("InfrastructureReady", "False", "Stalled", "quota exceeded. No further attempt is made")
REMOVED = since("InfrastructureReady", "False", "ObjectDeleted", "SimMachine has been deleted while the Machine exists")
SILENT = since("NodeReady", "Unknown", "NodeReadyUnknown", "* Node.Ready: Kubelet stopped posting node status.")
ILL = since("NodeReady", "False", "NodeNotReady", "* Node.Ready: container runtime is down")
DELETED = since("NodeReady", "False", "NodeDeleted", "Node node-m has been deleted while the Machine still exists")
QUORUM = since("Available", "False", "QuorumLost", "etcd of ns/c: quorum is lost")


def judged(*machines: Machine, connection: Connection = CONNECTED, built: bool = True, **more: Any) -> HealthVerdict:
    return judge(Evidence(now=NOW, built=built, connection=connection, machines=machines, **more))


def judged_condition(*machines: Machine, **more: Any) -> tuple[str, str]:
    found = judged(*machines, **more)
    return found.status, found.reason


def lost(seconds: float, **more: Any) -> Connection:
    return Connection(since=NOW - seconds, last_success=NOW - seconds, failures=3, error="no route", **more)


def test_reachable_cluster_with_ready_nodes_is_healthy() -> None:
    found = judged(WELL, control_plane=since("Available", "True", "Available"))
    assert found == HealthVerdict("True"), "and time alone changes nothing"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([STALLED], ("False", "MachineFailed")),
        ([REMOVED], ("False", "ServerLost")),
        ([DELETED], ("False", "NodeLost")),
        ([SILENT], ("False", "NodeNotReady")),
        ([ILL], ("False", "NodeNotReady")),
        ([since("NodeReady", "Unknown", "ConnectionDown", "Remote connection down")], ("True", "")),
        ([since("NodeReady", "Unknown", "InspectionFailed", "Waiting for a Node")], ("True", "")),
        ([since("NodeReady", "Unknown", "NotYetReported", "* Node.Ready: in other words")], ("True", "")),
        ([since("InfrastructureReady", "Unknown", "InternalError", "the server is away")], ("True", "")),
        ([REMOVED, SILENT], ("False", "ServerLost")),
        ([], ("True", "")),
    ],
)
def test_machine_condition_decides_verdict_unless_deleting(said: list[Condition], expected: tuple[str, str]) -> None:
    assert judged_condition(WELL, machine("m", *said)) == expected
    assert judged_condition(WELL, machine("m", *said, deletion_timestamp=JUST_NOW)) == ("True", ""), (
        "nobody counts on it"
    )


def test_verdict_message_names_gravest_machine_and_time_in_one_line() -> None:
    found = judged(machine("b", SILENT), machine("a", ILL), *(machine(f"z{n}", ILL) for n in range(4)))
    assert found.message == (
        "Machine b: Node node-b is not ready: Kubelet stopped posting node status. (since 2026-06-01T11:59:00Z)"
        "; also a, z0, z1 and 2 more"
    )


def test_newly_joined_unready_node_is_tolerated_for_ten_minutes() -> None:
    young = machine("m", ILL, made=clock.rfc3339(NOW - 590))
    assert judged(young) == HealthVerdict("True", look_again=10.0)
    assert judged_condition(machine("m", ILL, made=clock.rfc3339(NOW - 600))) == ("False", "NodeNotReady")
    assert judged_condition(machine("m", SILENT, made=clock.rfc3339(NOW - 590))) == ("False", "NodeNotReady"), (
        "it was there"
    )


def test_only_permanent_failures_count_before_first_api_response() -> None:
    nothing = Connection(since=NOW - 5)
    assert judged_condition(machine("m", REMOVED), machine("n", SILENT), built=False, connection=nothing) == (
        "True",
        "",
    )
    assert judged_condition(machine("m", STALLED, server=False), built=False, connection=nothing) == (
        "False",
        "MachineFailed",
    )
    assert judged_condition(machine("m", REMOVED, server=False)) == ("True", ""), (
        "a server that is still made is not lost"
    )


# ---- the API


@pytest.mark.parametrize(("seconds", "expected"), [(0, "True"), (59, "True"), (60, "Unknown"), (9999, "Unknown")])
def test_api_is_reported_silent_after_one_minute(seconds: float, expected: str) -> None:
    found = judged(WELL, connection=lost(seconds))
    assert found.status == expected
    assert found.look_again == (60 - seconds if seconds < 60 else None)
    if expected == "Unknown":
        assert found.message == f"API has not answered since {clock.rfc3339(NOW - seconds)}: no route"


def test_held_connection_without_failures_stays_healthy() -> None:
    rarely = Connection(connected=True, last_success=NOW - 70, error="")
    assert judged(WELL, connection=rarely) == HealthVerdict("True")
    failing = Connection(connected=True, last_success=NOW - 70, failures=1, error="no answer in time")
    assert judged_condition(WELL, connection=failing) == ("Unknown", "APISilent")


def test_silent_api_overrides_node_failures_but_not_permanent_failures() -> None:
    silent = lost(60)
    assert judged_condition(machine("m", SILENT), connection=silent) == ("Unknown", "APISilent")
    assert judged_condition(machine("m", REMOVED), connection=silent) == ("False", "ServerLost")
    assert judged_condition(connection=silent, control_plane=QUORUM) == ("False", "QuorumLost")


def test_unknown_control_plane_makes_verdict_unknown() -> None:
    assert judged_condition(WELL, control_plane=since("Available", "Unknown", "Away", "?")) == ("Unknown", "Away")


@pytest.mark.parametrize("status", ["True", "False"])
def test_restarted_manager_keeps_previous_verdict_for_one_minute(status: str) -> None:
    before = since("Ready", status, "Before", "as it was\nwith all its lines")
    for connection in (Connection(since=NOW - 59, failures=9, error="no route"), Connection(since=NOW)):
        found = judged(machine("m", SILENT), connection=connection, before=before)
        assert (found.status, found.reason, found.message) == (status, "Before", before.message)
        assert found.stands
    asked = Connection(since=NOW - 60, failures=9, error="no route")
    found = judged(machine("m", SILENT), connection=asked, before=before)
    assert (found.status, found.reason, found.stands) == ("Unknown", "APISilent", False)
    assert "API has never answered, first asked at" in found.message


def test_verdict_without_previous_condition_waits_for_api() -> None:
    for before in (None, since("Ready", "Unknown", "Waiting", "for something")):
        assert judged_condition(WELL, connection=Connection(since=NOW), before=before) == ("Unknown", "WaitingForAPI")


connections = st.builds(
    Connection,
    connected=st.booleans(),
    since=st.none() | st.floats(NOW - 200, NOW),
    last_success=st.none() | st.floats(NOW - 200, NOW),
    failures=st.integers(0, 6),
    error=st.sampled_from(["", "no route", "two\nlines"]),
)
words = st.sampled_from([STALLED, REMOVED, SILENT, ILL, DELETED])
machines = st.lists(st.builds(machine, st.text("abc", min_size=1), words), max_size=4)
control_planes = st.none() | st.builds(
    since, st.just("Available"), st.sampled_from(["True", "False", "Unknown"]), st.just("R")
)


@given(connections, machines, control_planes, st.booleans(), st.randoms())
def test_verdict_is_one_line_with_future_requeue_and_order_independent(
    connection: Connection, some: list[Machine], said: Condition | None, built: bool, random: Any
) -> None:
    evidence = Evidence(now=NOW, built=built, connection=connection, machines=some, control_plane=said)
    found = judge(evidence)
    assert "\n" not in found.message
    assert found.status == "True" or found.reason
    assert found.look_again is None or 0 < found.look_again <= health.JOINING_SECONDS
    shuffled = Evidence(
        now=NOW, built=built, connection=connection, machines=random.sample(some, len(some)), control_plane=said
    )
    assert judge(shuffled) == found


@given(connections, st.booleans())
def test_healthy_verdict_requires_recent_response_or_held_connection(connection: Connection, stood: bool) -> None:
    before = since("Ready", "True", "Ready") if stood else None
    found = judge(Evidence(now=NOW, built=True, connection=connection, machines=[WELL], before=before))
    if found.status != "True" or found.stands:
        return
    assert connection.last_success is not None
    holds = connection.connected and not connection.failures
    assert holds or NOW - connection.last_success < health.SILENT_SECONDS
