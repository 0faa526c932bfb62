from __future__ import annotations

import json

import msgspec
import pytest

from remuda.providers.controlplane.planner import progress
from remuda.providers.controlplane.planner.decision import Deliver, RequestDrain, RequestUncordon, RunAgain
from remuda.providers.controlplane.planner.host_configuration import drain_request
from remuda.providers.controlplane.planner.observation import Drain, Observation
from remuda.providers.shared.types.configuration import DrainHook, DrainOptions
from tests.unit.providers.controlplane.planner import plans, scene
from tests.unit.providers.controlplane.planner.plans import decide
from tests.unit.providers.controlplane.planner.scene import CONTROL_PLANE, ETCD, WORKER

DRAIN = DrainOptions(enabled=True)


def _with_new_version(observed: Observation, *names: str) -> Observation:
    """Hosts that have it already."""
    for name in names:
        host = scene.host(observed, name)
        plan = json.dumps({**json.loads(host.report.plan), "version": "v1.36.4+k3s1"}, sort_keys=True).encode()
        node = host.node and msgspec.structs.replace(host.node, kubelet_version="v1.36.4+k3s1")
        observed = scene.with_host(observed, name, report={"plan": plan, "applied": plan}, node=node)
    return observed


SERVERS = ("server-1", "server-2", "server-3")


# ---- tiers


def test_workers_are_upgraded_after_all_servers() -> None:
    observed = scene.upgraded(_with_new_version(scene.three_servers(), "server-1", "server-2"), workers_at_a_time="0")
    assert scene.hosts_of(decide(observed), Deliver) == ["server-3"]
    observed = scene.upgraded(_with_new_version(scene.three_servers(), *SERVERS), workers_at_a_time="0")
    assert scene.hosts_of(decide(observed), Deliver) == ["worker-4", "worker-5"]


def test_control_planes_are_upgraded_after_etcd() -> None:
    observed = scene.settled(("etcd", ETCD, 1), ("control", CONTROL_PLANE, 2), ("worker", WORKER, 1))
    assert scene.hosts_of(decide(scene.upgraded(observed)), Deliver) == ["etcd-1"]
    observed = _with_new_version(observed, "etcd-1")
    assert scene.hosts_of(decide(scene.upgraded(observed)), Deliver) == ["control-2"]
    assert scene.hosts_of(decide(scene.upgraded(observed, servers_at_a_time="2")), Deliver) == [
        "control-2",
        "control-3",
    ]


@pytest.mark.parametrize(("at_a_time", "count"), [("", 1), ("2", 2), ("50%", 2), ("60%", 3), ("0", 4), ("100%", 4)])
def test_worker_concurrency_limits_upgrades(at_a_time: str, count: int) -> None:
    observed = _with_new_version(scene.settled(("server", scene.SERVER, 1), ("worker", WORKER, 4)), "server-1")
    decision = decide(scene.upgraded(observed, workers_at_a_time=at_a_time))
    assert len(scene.acts(decision, Deliver)) == count


def test_unhealthy_worker_uses_concurrency_slot_and_silent_worker_does_not() -> None:
    observed = _with_new_version(scene.three_servers(), *SERVERS, "worker-4")
    out = scene.with_host(observed, "worker-4", report={"probes": {"kubelet": False}})
    assert not scene.acts(decide(scene.upgraded(out)), Deliver)
    old = scene.host(scene.three_servers(), "worker-4").report.applied
    silent = scene.with_host(observed, "worker-4", report={"applied": old, "state": "pending", "delivered": 0.0})
    assert scene.hosts_of(decide(scene.upgraded(silent)), Deliver) == ["worker-5"]


def test_unhealthy_worker_is_not_upgraded_before_servers() -> None:
    observed = scene.with_host(scene.three_servers(), "worker-4", report={"probes": {"kubelet": False}})
    assert scene.hosts_of(decide(scene.upgraded(observed)), Deliver) == ["server-1"]


def test_minor_file_changes_reach_all_hosts_at_once() -> None:
    observed = scene.three_servers()
    observed = scene.with_host(observed, "server-2", internal_addresses=("10.9.9.9",))
    assert scene.hosts_of(decide(observed), Deliver) == ["server-3", "worker-4", "worker-5"]


def test_change_without_restart_needs_no_quorum() -> None:
    observed = scene.with_host(scene.dead(scene.three_servers(), "server-3"), "server-1", node_labels={"a": "b"})
    assert scene.hosts_of(decide(observed), Deliver) == ["server-1"]


def test_failed_server_does_not_block_worker_config() -> None:
    observed = scene.with_spec(scene.three_servers(), settings={"n": 1})
    for name in SERVERS:
        host = scene.host(observed, name)
        plan = host.report.plan.replace(b'"n": 0', b'"n": 1')
        failed = {"plan": plan, "state": "failed", "failures": 1, "last_apply": observed.now}
        done = {"plan": plan, "applied": plan}
        observed = scene.with_host(observed, name, report=failed if name == "server-3" else done)
    assert scene.hosts_of(decide(observed), Deliver) == ["worker-4"]


# ---- drain


def test_worker_is_drained_before_restart_and_uncordoned_after() -> None:
    observed = scene.upgraded(_with_new_version(scene.three_servers(), *SERVERS), drain=DRAIN)
    request = drain_request(DRAIN)
    assert decide(observed).acts == [RequestDrain("worker-4", request)]
    observed = scene.with_host(observed, "worker-4", drain=Drain(requested=request))
    assert not decide(observed).acts
    observed = scene.with_host(
        observed, "worker-4", drain=Drain(requested=request, error="budget app does not allow it")
    )
    assert "budget app does not allow it" in decide(observed).waits[0].missing
    observed = scene.with_host(observed, "worker-4", drain=Drain(requested=request, done=request))
    assert scene.hosts_of(decide(observed), Deliver) == ["worker-4"]
    observed = _with_new_version(observed, "worker-4")
    assert RequestUncordon("worker-4", request) in decide(observed).acts


def test_drained_worker_is_uncordoned_when_change_is_reverted() -> None:
    request = drain_request(DRAIN)
    observed = scene.with_host(scene.three_servers(), "worker-4", drain=Drain(requested=request, done=request))
    assert decide(observed).acts == [RequestUncordon("worker-4", request)]


def test_requested_drain_is_kept_while_infrastructure_is_not_ready() -> None:
    request = drain_request(DRAIN)
    observed = scene.upgraded(_with_new_version(scene.three_servers(), *SERVERS), drain=DRAIN)
    observed = scene.with_host(observed, "worker-4", drain=Drain(requested=request))
    assert not decide(msgspec.structs.replace(observed, infrastructure_ready=False)).acts


def test_drain_is_skipped_for_config_restart_and_single_node() -> None:
    observed = scene.with_spec(scene.three_servers(), settings={"n": 1}, drain=DRAIN)
    assert scene.hosts_of(decide(observed), Deliver) == ["server-1"]
    single = scene.upgraded(scene.settled(("all", scene.ALL, 1)), drain=DRAIN)
    assert scene.hosts_of(decide(single), Deliver) == ["all-1"]


def test_host_in_service_is_not_restarted_undrained_without_api() -> None:
    observed = scene.upgraded(_with_new_version(scene.three_servers(), *SERVERS), drain=DRAIN)
    hosts = [msgspec.structs.replace(host, node=None) for host in observed.hosts]
    decision = decide(msgspec.structs.replace(observed, hosts=hosts, reachable=False, unreachable="no route"))
    assert not decision.acts
    assert "no route" in decision.waits[0].missing


def test_drain_request_serializes_options_exactly() -> None:
    assert drain_request(DrainOptions(enabled=True, timeout=120)) == (
        '{"deleteEmptyDirData":false,"disableEviction":false,"enabled":true,"force":false,"gracePeriod":0,'
        '"skipWaitForDeleteTimeoutSeconds":0,"timeout":120}'
    )
    hooked = drain_request(DrainOptions(pre_drain_hooks=[DrainHook("a/b")], ignore_daemon_sets=True))
    assert json.loads(hooked)["preDrainHooks"] == [{"annotation": "a/b"}]
    assert json.loads(hooked)["ignoreDaemonSets"] is True


# ---- retries


def _failed(observed: Observation, failures: int, ago: float | None) -> Observation:
    last = None if ago is None else observed.now - ago
    return scene.with_host(
        observed,
        "worker-4",
        report={"state": "failed", "failures": failures, "failed_message": "disk full", "last_apply": last},
    )


def test_failed_plan_is_retried_with_reason_attempt_and_time() -> None:
    decision = decide(_failed(scene.three_servers(), 2, 10.0))
    assert not decision.acts
    assert decision.look_again == 50.0
    said = str(decision.waits[0])
    assert "disk full" in said
    assert "attempt 2" in said
    assert "the planner retries at" in said
    assert decide(_failed(scene.three_servers(), 2, 61.0)).acts == [RunAgain("worker-4", 3)]


def test_delays_double_to_ten_minutes() -> None:
    assert [progress.delay(n) for n in (1, 2, 3, 4, 5, 6, 1000)] == [30, 60, 120, 240, 480, 600, 600]


def test_host_clock_skew_does_not_affect_retry_time() -> None:
    observed = _failed(scene.three_servers(), 1, -86400.0)
    delivered = scene.host(observed, "worker-4").report.delivered
    assert delivered is not None
    assert progress.next_attempt(scene.host(observed, "worker-4"), observed.now) == delivered + 30
    many = _failed(scene.three_servers(), 5, -86400.0)
    assert progress.next_attempt(scene.host(many, "worker-4"), many.now) == delivered + 30 + 60 + 120 + 240 + 480


def test_voter_plan_is_not_retried_when_quorum_is_at_risk() -> None:
    observed = scene.dead(scene.three_servers(), "server-2")
    plan = scene.host(observed, "server-3").report.plan.replace(b'"n": 0', b'"n": 1')
    observed = scene.with_host(
        observed, "server-3", report={"plan": plan, "state": "failed", "failures": 1, "last_apply": observed.now - 100}
    )
    decision = decide(scene.with_spec(observed, settings={"n": 1}))
    assert not scene.acts(decision, RunAgain)
    assert "QuorumAtRisk" in {wait.reason for wait in decision.held}


def test_applied_plan_waits_for_probes() -> None:
    decision = decide(scene.with_host(scene.three_servers(), "worker-4", report={"probes": {}}))
    assert decision.hosts["worker-4"].wait is not None
    assert not decision.hosts["worker-4"].up_to_date


def test_node_with_old_kubelet_is_not_up_to_date() -> None:
    host = scene.host(scene.three_servers(), "worker-4")
    assert host.node is not None
    old = msgspec.structs.replace(host.node, kubelet_version="v1.36.2+k3s1")
    decision = decide(scene.with_host(scene.three_servers(), "worker-4", node=old))
    wait = decision.hosts["worker-4"].wait
    assert wait is not None
    assert wait.missing == "waiting for kubelet to update"


def test_real_renderer_delivers_first_plan() -> None:
    """The real one, not that of these tests."""
    from remuda.providers.controlplane.planner.decide import decide as real

    observed = scene.fresh(scene.newcomer("all-1", scene.ALL, init=True, node_name="all-1"), cluster=plans.cluster())
    (deliver,) = real(observed).acts
    assert isinstance(deliver, Deliver)
    assert deliver.why == "first plan"
    assert "probes" in json.loads(deliver.plan)


# ---- since when


def _since(observed: Observation, name: str) -> float | None:
    wait = decide(observed).hosts[name].wait
    assert wait is not None
    return wait.since


def test_wait_for_delivered_plan_starts_now() -> None:
    observed = scene.upgraded(scene.three_servers())
    assert scene.hosts_of(decide(observed), Deliver) == ["server-1"]
    before = scene.host(observed, "server-1").report.delivered
    assert before is not None
    assert before < observed.now == _since(observed, "server-1")


def test_wait_for_turn_starts_when_machine_became_unsettled() -> None:
    observed = scene.upgraded(scene.three_servers())
    assert _since(observed, "server-2") == observed.now
    moment = observed.now - 60
    assert _since(scene.with_host(observed, "server-2", unsettled_since=moment), "server-2") == moment


def test_wait_for_probes_starts_at_failure_or_apply() -> None:
    observed = scene.three_servers()
    now = observed.now
    for unsettled, applied, since in ((now - 60, now - 3000, now - 60), (now - 3000, now - 60, now - 60)):
        changed = scene.with_host(
            observed, "worker-4", unsettled_since=unsettled, report={"probes": {}, "last_apply": applied}
        )
        assert _since(changed, "worker-4") == since
