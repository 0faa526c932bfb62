from __future__ import annotations

import msgspec

from remuda.providers.controlplane.planner.decision import Deliver, Forget, Hold, Leave, Mark, Release
from remuda.providers.controlplane.planner.observation import Observation, Orphan
from tests.unit.providers.controlplane.planner import plans, scene
from tests.unit.providers.controlplane.planner.plans import decide
from tests.unit.providers.controlplane.planner.scene import ALL, SERVER, WORKER

GOES = {"deleting_since": 6000.0, "drained": True}


def _leaving(observed: Observation, name: str, **node: bool) -> Observation:
    found = scene.host(observed, name).node
    assert found is not None
    return scene.with_host(observed, name, node=msgspec.structs.replace(found, **node), **GOES)


def _retired(observed: Observation, name: str, state: str, delivered: float = 6100.0) -> Observation:
    plan = plans.retire(observed.cluster, scene.host(observed, name))
    return scene.with_host(observed, name, report={"plan": plan, "state": state, "delivered": delivered, "probes": {}})


def test_host_leaves_only_after_its_drain() -> None:
    """Member removed before the drain, so the kubelet loses its API."""
    observed = scene.with_host(scene.three_servers(), "server-3", deleting_since=6000.0)
    assert not scene.acts(decide(observed), Leave)
    assert scene.hosts_of(decide(scene.with_host(observed, "server-3", drained=True)), Leave) == ["server-3"]


def test_removal_order_is_leave_stop_release() -> None:
    observed = _leaving(scene.three_servers(), "server-3", leaving=True)
    assert not [act for act in decide(observed).acts if getattr(act, "host", "") == "server-3"]
    observed = _leaving(observed, "server-3", leaving=True, left=True)
    assert "server-3" not in scene.hosts_of(decide(observed), Deliver)  # the others still list it
    observed = scene.without_member(observed, "server-3")
    (stop,) = [act for act in scene.acts(decide(observed), Deliver) if act.host == "server-3"]
    assert b"retire" in stop.plan
    observed = msgspec.structs.replace(_retired(observed, "server-3", "pending"), now=6110.0)
    assert not scene.acts(decide(observed), Release)
    observed = _retired(observed, "server-3", "succeeded")
    assert scene.hosts_of(decide(observed), Release) == ["server-3"]


def test_silent_retired_host_is_released_after_two_minutes() -> None:
    observed = scene.without_member(_leaving(scene.three_servers(), "server-3", leaving=True, left=True), "server-3")
    observed = _retired(observed, "server-3", "pending")
    early = decide(msgspec.structs.replace(observed, now=6150.0))
    assert not scene.acts(early, Release)
    assert early.look_again == 70.0
    assert scene.hosts_of(decide(msgspec.structs.replace(observed, now=6221.0)), Release) == ["server-3"]


def test_members_leave_one_at_a_time() -> None:
    """Quorum lost on scale-down."""
    observed = scene.with_host(scene.with_host(scene.three_servers(), "server-3", **GOES), "server-2", **GOES)
    decision = decide(observed)
    assert scene.hosts_of(decision, Leave) == ["server-2"]
    wait = decision.hosts["server-3"].wait
    assert wait is not None
    assert "one at a time" in wait.missing


def test_dead_member_leaves_before_healthy_member() -> None:
    observed = scene.dead(scene.three_servers(), "server-2")
    decision = decide(scene.with_host(observed, "server-3", **GOES))
    assert not scene.acts(decision, Leave)
    assert decision.held[0].reason == "QuorumAtRisk"
    both = scene.with_host(scene.with_host(observed, "server-3", **GOES), "server-2", **GOES)
    assert scene.hosts_of(decide(both), Leave) == ["server-2"]


def test_one_of_two_members_may_leave_but_last_is_held() -> None:
    two = scene.settled(("server", SERVER, 2), ("worker", WORKER, 1))
    assert scene.hosts_of(decide(scene.with_host(two, "server-2", **GOES)), Leave) == ["server-2"]
    one = scene.settled(("server", SERVER, 1), ("worker", WORKER, 1))
    decision = decide(scene.with_host(one, "server-1", **GOES))
    assert not decision.acts
    assert decision.held[0].reason == "LastEtcdMember"


def test_init_node_mark_moves_before_its_host_leaves() -> None:
    observed = scene.with_host(scene.three_servers(), "server-1", **GOES)
    decision = decide(observed)
    assert scene.hosts_of(decision, Mark) == ["server-2"]
    assert not scene.acts(decision, Leave)
    moved = scene.with_host(scene.with_host(observed, "server-1", init=False), "server-2", init=True)
    assert scene.hosts_of(decide(moved), Leave) == ["server-1"]


def test_unreachable_api_holds_member_and_retires_non_member() -> None:
    observed = scene.three_servers()
    hosts = [msgspec.structs.replace(host, node=None) for host in observed.hosts]
    cut_off = msgspec.structs.replace(observed, hosts=hosts, reachable=False, unreachable="no route to host")
    decision = decide(scene.with_host(cut_off, "server-3", **GOES))
    assert not scene.acts(decision, Leave)
    assert "no route to host" in decision.held[0].missing
    assert "etcd-force-remove" in decision.held[0].then
    gone = scene.without_member(scene.with_host(cut_off, "server-3", **GOES), "server-3")
    gone = msgspec.structs.replace(gone, now=9000.0)
    assert "server-3" in scene.hosts_of(decide(gone), Deliver)


def test_force_remove_and_unplanned_hosts_are_released_at_once() -> None:
    observed = scene.with_host(scene.dead(scene.three_servers(), "server-2"), "server-3", force_remove=True, **GOES)
    assert scene.hosts_of(decide(observed), Release) == ["server-3"]
    observed = scene.with_newcomer(scene.three_servers(), scene.newcomer("server-9", SERVER, deleting_since=6000.0))
    assert scene.hosts_of(decide(observed), Release) == ["server-9"]


def test_released_host_is_not_held_again() -> None:
    observed = scene.with_newcomer(
        scene.three_servers(), scene.newcomer("server-9", SERVER, deleting_since=6000.0, held=False)
    )
    assert not [act for act in decide(observed).acts if act.host == "server-9"]  # type: ignore[union-attr]
    forced = scene.with_host(scene.three_servers(), "server-3", force_remove=True, **{**GOES, "held": False})
    assert not scene.acts(decide(forced), Hold)


def test_uninitialized_cluster_can_lose_its_first_host() -> None:
    """Deleting something that never finished provisioning."""
    observed = scene.settled(("all", ALL, 1))
    observed = scene.with_host(observed, "all-1", node=None, **GOES)
    observed = msgspec.structs.replace(observed, initialized=False, reachable=False)
    observed = scene.with_newcomer(observed, scene.newcomer("all-2", ALL))
    decision = decide(observed)
    assert scene.hosts_of(decision, Deliver) == ["all-1"]
    assert not scene.acts(decision, Mark)
    gone = msgspec.structs.replace(observed, hosts=[host for host in observed.hosts if host.name != "all-1"])
    assert scene.hosts_of(decide(gone), Mark) == ["all-2"]


def test_joining_host_is_not_stopped_when_quorum_is_at_risk() -> None:
    observed = scene.settled(("server", SERVER, 1), ("worker", WORKER, 1))
    observed = scene.with_newcomer(observed, scene.newcomer("server-9", SERVER))
    plan = next(act.plan for act in scene.acts(decide(observed), Deliver) if act.host == "server-9")
    observed = scene.with_host(
        observed, "server-9", report={"plan": plan, "state": "in-progress", "delivered": observed.now}, **GOES
    )
    decision = decide(observed)
    assert "server-9" not in scene.hosts_of(decision, Deliver)
    wait = decision.hosts["server-9"].wait
    assert wait is not None
    assert "joining" in wait.missing
    late = msgspec.structs.replace(observed, now=observed.now + 601)
    assert "server-9" in scene.hosts_of(decide(late), Deliver)


def test_node_of_deleted_machine_is_forgotten() -> None:
    """A Machine that went while its cluster did not answer leaves its Node."""
    worker = Orphan("gone-7", etcd=False)
    observed = msgspec.structs.replace(scene.three_servers(), orphans=[worker])
    assert scene.acts(decide(observed), Forget) == [Forget("gone-7")]


def test_orphan_node_that_may_be_etcd_member_is_not_forgotten() -> None:
    """Deleting a Node takes its member along, which has to be weighed."""
    observed = scene.three_servers()
    listed = msgspec.structs.replace(observed, orphans=[Orphan("server-3", etcd=True), Orphan("gone-7", etcd=True)])
    assert scene.acts(decide(listed), Forget) == [Forget("gone-7")]  # the members are known, and it is none
    for host in observed.hosts:
        listed = scene.with_host(listed, host.name, report={"members": None})
    assert not scene.acts(decide(listed), Forget)
