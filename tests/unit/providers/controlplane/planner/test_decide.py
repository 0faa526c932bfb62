from __future__ import annotations

import msgspec
import pytest

from remuda.kube.wait import Wait
from remuda.providers.controlplane.planner.decision import Deliver, Hold, Mark, Release, RunAgain
from remuda.providers.controlplane.planner.observation import Roles
from tests.unit.providers.controlplane.planner import scene
from tests.unit.providers.controlplane.planner.plans import decide
from tests.unit.providers.controlplane.planner.scene import ALL, CONTROL_PLANE, ETCD, SERVER, WORKER


def test_settled_cluster_needs_no_acts() -> None:
    decision = decide(scene.three_servers())
    assert (decision.acts, decision.waits, decision.held, decision.look_again) == ([], [], [], None)
    assert decision.stage == ""
    assert decision.initialized
    assert decision.bootstrapped
    assert decision.provisioned
    assert decision.lost is None
    assert {status.phase for status in decision.hosts.values()} == {"ready"}


def test_paused_cluster_gets_no_acts_and_reports_pause() -> None:
    observed = msgspec.structs.replace(scene.upgraded(scene.three_servers()), paused="the Cluster's spec.paused is set")
    decision = decide(observed)
    assert not decision.acts
    assert "spec.paused is set" in str(decision.waits[0])


def test_cluster_deletion_releases_hosts_without_leaving_etcd() -> None:
    observed = msgspec.structs.replace(scene.dead(scene.three_servers(), "server-2"), deleting=True)
    decision = decide(observed)
    assert scene.hosts_of(decision, Release) == ["server-1", "server-2", "server-3"]
    assert len(decision.acts) == 3


def test_missing_reference_keeps_plans_unchanged() -> None:
    problem = Wait(reason="SecretMissing", on="Secret default/registry", missing="is not there")
    observed = msgspec.structs.replace(scene.upgraded(scene.three_servers()), problems=[problem])
    decision = decide(observed)
    assert not decision.acts
    assert decision.waits[0] == problem


def test_no_host_is_configured_before_the_infrastructure_is_ready() -> None:
    decision = decide(scene.fresh(scene.newcomer("all-1", ALL, init=True), infrastructure_ready=False))
    assert not decision.acts
    assert decision.waits[0].missing == "waiting for infrastructure ready"


def test_init_mark_is_written_before_first_plan() -> None:
    first = scene.newcomer("all-1", ALL)
    assert [type(act) for act in decide(scene.fresh(first)).acts] == [Mark]
    marked = msgspec.structs.replace(first, init=True)
    (act,) = decide(scene.fresh(marked)).acts
    assert isinstance(act, Deliver)
    assert b'"join": "init"' in act.plan
    assert act.why == "first plan"


def test_etcd_hosts_get_deletion_hook_from_start() -> None:
    observed = scene.fresh(scene.newcomer("server-1", SERVER, held=False), scene.newcomer("worker-2", WORKER))
    assert scene.hosts_of(decide(observed), Hold) == ["server-1"]


def test_control_planes_wait_for_etcd_and_workers_for_control_plane() -> None:
    etcd = scene.settled(("etcd", ETCD, 1), ("control", CONTROL_PLANE, 1), ("worker", WORKER, 1))
    fresh = {name: scene.newcomer(name, roles) for name, roles in (("control-2", CONTROL_PLANE), ("worker-3", WORKER))}
    hosts = [fresh.get(host.name, msgspec.structs.replace(host, node=None)) for host in etcd.hosts]
    decision = decide(msgspec.structs.replace(etcd, hosts=hosts, initialized=False, reachable=False))
    assert scene.hosts_of(decision, Deliver) == ["control-2"]
    wait = decision.hosts["worker-3"].wait
    assert wait is not None
    assert wait.missing == "waiting for control plane to be available"
    assert not decision.initialized
    assert decision.bootstrapped


def test_plan_delivery_does_not_wait_for_workload_api() -> None:
    observed = scene.with_newcomer(scene.three_servers(), scene.newcomer("worker-9", WORKER))
    hosts = [msgspec.structs.replace(host, node=None) for host in observed.hosts]
    cut_off = msgspec.structs.replace(observed, hosts=hosts, reachable=False, unreachable="no route")
    assert scene.hosts_of(decide(cut_off), Deliver) == ["worker-9"]


def test_failed_host_does_not_block_other_hosts() -> None:
    observed = scene.upgraded(scene.with_host(scene.three_servers(), "worker-4", failed="its server is gone"))
    observed = scene.with_newcomer(observed, scene.newcomer("worker-9", WORKER))
    decision = decide(observed)
    assert {"server-1", "worker-9"} == set(scene.hosts_of(decision, Deliver))
    status = decision.hosts["worker-4"]
    assert status.phase == "failing"
    assert status.wait is not None
    assert "its server is gone" in status.wait.missing


def test_cluster_without_etcd_data_asks_for_restore() -> None:
    observed = scene.three_servers()
    staying = [host for host in observed.hosts if not host.roles.etcd]
    observed = msgspec.structs.replace(observed, hosts=[*staying, scene.newcomer("server-9", SERVER, held=True)])
    decision = decide(observed)
    assert not decision.acts
    assert decision.lost is not None
    assert "restore a snapshot" in str(decision.waits[0])


def test_machine_without_role_is_reported() -> None:
    decision = decide(scene.with_newcomer(scene.three_servers(), scene.newcomer("odd-9", Roles())))
    assert not decision.acts
    assert [wait.reason for wait in decision.waits] == ["NoRole"]


@pytest.mark.parametrize("state", ["failed", "in-progress", "pending"])
def test_new_config_supersedes_unfinished_plan(state: str) -> None:
    observed = scene.three_servers()
    broken = scene.host(scene.with_spec(observed, settings={"n": 1}), "worker-4")
    plan = broken.report.plan.replace(b'"n": 0', b'"n": 1')
    observed = scene.with_host(
        observed, "worker-4", report={"plan": plan, "state": state, "failures": 1, "probes": {}, "delivered": 6000.0}
    )
    decision = decide(scene.with_spec(observed, settings={"n": 0}))
    assert scene.hosts_of(decision, Deliver) == ["worker-4"]
    assert not scene.acts(decision, RunAgain)


def test_stage_message_names_hosts_and_probes() -> None:
    observed = scene.with_host(scene.three_servers(), "server-2", report={"probes": {"etcd": False, "kubelet": True}})
    assert decide(observed).stage == "configuring etcd node(s) server-2: waiting for probes: etcd, kube-apiserver"
    upgrade = decide(scene.upgraded(scene.three_servers())).stage
    assert upgrade == "configuring bootstrap node(s) server-1: waiting for plan to be applied"
