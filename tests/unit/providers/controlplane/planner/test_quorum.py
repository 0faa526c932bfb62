from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from remuda.kube import clock
from remuda.providers.controlplane.planner.decision import Deliver, Expel, Leave, Release
from remuda.providers.controlplane.planner.observation import EtcdMember, Observation
from tests.unit.providers.controlplane.planner import scene
from tests.unit.providers.controlplane.planner.plans import decide
from tests.unit.providers.controlplane.planner.scene import SERVER, WORKER


def test_voters_are_restarted_one_at_a_time() -> None:
    """Several etcd nodes upgraded at once."""
    observed = scene.upgraded(scene.three_servers(), servers_at_a_time="0")
    assert scene.hosts_of(decide(observed), Deliver) == ["server-1"]


def test_voters_are_not_restarted_while_another_is_dead() -> None:
    observed = scene.upgraded(scene.dead(scene.three_servers(), "server-3"))
    decision = decide(observed)
    assert scene.hosts_of(decision, Deliver) == ["server-3"]  # nothing more is lost there
    held = next(wait for wait in decision.held if "server-1" in wait.on)
    assert held.reason == "QuorumAtRisk"
    assert "server-3-1a2b3c" in held.missing


def test_restarting_voter_counts_as_lost() -> None:
    observed = scene.with_host(scene.three_servers(), "server-2", report={"probes": {}})
    observed = scene.upgraded(observed)
    assert "server-1" not in scene.hosts_of(decide(observed), Deliver)


@pytest.mark.parametrize("news", [{"settings": {"n": 1}, "labels": {}}, {"settings": {"n": 1}}])
def test_new_plan_for_failed_voter_waits_for_quorum(news: dict[str, Any]) -> None:
    """Whatever is in the new plan, the rest of it is what has failed."""
    observed = scene.with_spec(scene.dead(scene.three_servers(), "server-3"), settings={"n": 1})
    host = scene.host(observed, "server-2")
    before = json.loads(host.report.plan)
    failed = json.dumps(before | {"join": [], "labels": {"old": "1"}} | news, sort_keys=True).encode()
    report = {"plan": failed, "applied": host.report.plan, "state": "failed", "failures": 1}
    decision = decide(scene.with_host(observed, "server-2", report=report))
    assert "server-2" not in scene.hosts_of(decision, Deliver)
    assert "QuorumAtRisk" in {wait.reason for wait in decision.held if "server-2" in wait.on}


def test_only_voter_may_be_restarted() -> None:
    observed = scene.upgraded(scene.settled(("server", SERVER, 1), ("worker", WORKER, 1)))
    assert scene.hosts_of(decide(observed), Deliver) == ["server-1"]


def test_two_voters_are_not_restarted_and_advice_is_given() -> None:
    observed = scene.upgraded(scene.settled(("server", SERVER, 2), ("worker", WORKER, 1)))
    decision = decide(observed)
    assert not scene.acts(decision, Deliver)
    assert "add an etcd machine" in str(decision.held[0])


def test_isolated_host_report_is_not_believed() -> None:
    """It calls the two others dead; they call it dead."""
    observed = scene.dead(scene.three_servers(), "server-3")
    members = scene.host(observed, "server-3").report.members or ()
    accusing = [msgspec.structs.replace(m, healthy=m.name.startswith("server-3")) for m in members]
    observed = scene.with_host(observed, "server-3", report={"members": accusing}, deleting_since=6000.0, drained=True)
    assert scene.hosts_of(decide(observed), Leave) == ["server-3"]


def test_unknown_members_allow_changes_only_to_broken_servers() -> None:
    observed = scene.three_servers()
    for name in ("server-1", "server-2", "server-3"):
        observed = scene.with_host(observed, name, report={"members": None})
    decision = decide(scene.with_spec(observed, settings={"n": 1}))
    assert scene.hosts_of(decision, Deliver) == ["worker-4"]
    assert {wait.reason for wait in decision.held} == {"EtcdMembersUnknown"}
    for name in ("server-2", "server-3"):
        observed = scene.with_host(observed, name, report={"probes": {"etcd": False}})
    decision = decide(scene.with_spec(observed, settings={"n": 1}))
    assert [name for name in scene.hosts_of(decision, Deliver) if name.startswith("server")] == ["server-2"]


def _with_stray(healthy: bool) -> Observation:
    observed = scene.three_servers()
    for host in observed.hosts:
        if host.report.members:
            members = (*host.report.members, EtcdMember("gone-7-1a2b3c", "10.0.0.77", healthy=healthy))
            observed = scene.with_host(observed, host.name, report={"members": members})
    return observed


def test_dead_stray_member_is_removed_and_reported() -> None:
    """Quorum counts a member nobody remembers."""
    decision = decide(_with_stray(healthy=False))
    assert scene.acts(decision, Expel) == [Expel(node="gone-7", member="gone-7-1a2b3c")]
    assert "gone-7-1a2b3c belongs to no Machine" in decision.held[0].missing


def test_healthy_stray_member_is_only_reported() -> None:
    decision = decide(_with_stray(healthy=True))
    assert not decision.acts
    assert decision.held[0].reason == "StrayEtcdMember"


# ---- a majority that is lost


def silent_api(observed: Observation, *dead: str, seconds: float = 60.0, unwell: tuple[str, ...] = ()) -> Observation:
    """The API has not answered for so long, and as long nothing was heard of those hosts. Their last words are that
    everybody is well; nobody who lives can list the members."""
    since = observed.now - seconds
    for host in observed.hosts:
        if host.name in dead:
            observed = scene.with_host(observed, host.name, silent_since=since, node=None)
        elif host.name in unwell:
            observed = scene.with_host(observed, host.name, node=None, report={"members": None, "probes": {}})
        else:
            observed = scene.with_host(observed, host.name, node=None)
    return msgspec.structs.replace(observed, reachable=False, unreachable="no route", unanswered_since=since)


def test_lost_quorum_message_names_dead_members_and_advice() -> None:
    observed = silent_api(scene.three_servers(), "server-1", "server-3", unwell=("server-2",))
    decision = decide(observed)
    assert decision.lost is not None
    assert decision.waits[0] == decision.lost
    assert decision.lost in decision.held
    since = clock.rfc3339(observed.now - 60)
    assert str(decision.lost) == (
        "etcd of default/prairie: quorum is lost: 2 of 3 members must run; "
        f"server-1 silent since {since}; server-3 silent since {since} (since {since}); "
        "start server-1, server-3 again, or restore from a snapshot; until then no member is changed"
    ).replace("default/prairie", f"{observed.cluster.namespace}/{observed.cluster.name}")


def test_lost_quorum_blocks_all_acts() -> None:
    observed = silent_api(scene.upgraded(scene.three_servers()), "server-1", "server-3", unwell=("server-2",))
    observed = scene.with_newcomer(observed, scene.newcomer("server-9", SERVER, held=True))
    observed = scene.with_newcomer(observed, scene.newcomer("worker-9", WORKER))
    observed = scene.with_host(observed, "server-1", deleting_since=observed.now - 30, drained=True, held=True)
    decision = decide(observed)
    assert decision.lost is not None
    assert decision.acts == []


def test_force_remove_releases_host_despite_lost_quorum() -> None:
    observed = silent_api(scene.three_servers(), "server-1", "server-3", unwell=("server-2",))
    going = {"deleting_since": observed.now - 30, "drained": True, "held": True, "force_remove": True}
    assert scene.hosts_of(decide(scene.with_host(observed, "server-1", **going)), Release) == ["server-1"]


@pytest.mark.parametrize(
    ("dead", "unwell", "lost"),
    [
        (("server-1",), (), False),
        (("server-1",), ("server-2",), True),
        ((), ("server-1", "server-2", "server-3"), True),
        ((), ("server-1",), False),
        (("server-1", "server-2", "server-3"), (), False),  # it may be the network to all of them
        (("server-1", "server-2"), (), True),
    ],
)
def test_quorum_is_lost_when_majority_is_dead_or_unhealthy(
    dead: tuple[str, ...], unwell: tuple[str, ...], lost: bool
) -> None:
    decision = decide(silent_api(scene.three_servers(), *dead, unwell=unwell))
    assert (decision.lost is not None) == lost


def test_short_silence_is_rechecked_before_quorum_is_lost() -> None:
    decision = decide(silent_api(scene.three_servers(), "server-1", "server-3", seconds=20, unwell=("server-2",)))
    assert decision.lost is None
    assert decision.look_again == 10


def test_answering_api_means_quorum_is_kept() -> None:
    observed = silent_api(scene.three_servers(), "server-1", "server-3")
    assert decide(msgspec.structs.replace(observed, unanswered_since=None)).lost is None


def test_single_member_silence_is_not_lost_quorum() -> None:
    observed = scene.settled(("server", SERVER, 1), ("worker", WORKER, 1))
    assert decide(silent_api(observed, "server-1")).lost is None


def test_quorum_lost_before_manager_start_counts_as_lost_until_api_answers() -> None:
    observed = silent_api(scene.upgraded(scene.three_servers()))
    words = "etcd of default/c: quorum is lost: 2 of 3 members must run; server-1 silent since yesterday"
    observed = msgspec.structs.replace(observed, lost_before=words)
    decision = decide(observed)
    assert str(decision.lost) == words
    assert decision.acts == []
    assert decide(msgspec.structs.replace(observed, unanswered_since=None)).lost is None
