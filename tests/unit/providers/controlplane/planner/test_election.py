from __future__ import annotations

import msgspec

from remuda.providers.controlplane.planner.decision import Deliver, Mark
from remuda.providers.controlplane.planner.observation import Pool
from tests.unit.providers.controlplane.planner import plans, scene
from tests.unit.providers.controlplane.planner.plans import decide
from tests.unit.providers.controlplane.planner.scene import ALL, SERVER, WORKER


def test_wait_lists_reason_for_every_init_candidate() -> None:
    """Waiting for viable init node, and nobody knows why."""
    observed = scene.fresh(
        scene.newcomer("all-1", ALL, infrastructure_ready=False),
        scene.newcomer("all-2", ALL, connected=False),
        scene.newcomer("all-3", ALL, failed="no quota"),
    )
    decision = decide(observed)
    assert not decision.acts
    said = decision.waits[0].missing
    assert "all-1: its infrastructure is not ready" in said
    assert "all-2: its agent has not connected yet" in said
    assert "all-3: has failed: no quota" in said


def test_dead_init_node_keeps_its_mark() -> None:
    observed = scene.dead(scene.three_servers(), "server-1")
    assert not scene.acts(decide(observed), Mark)


def test_init_mark_moves_to_healthy_member_not_to_new_host() -> None:
    """A newcomer that is told to begin would begin a second cluster."""
    observed = scene.with_newcomer(scene.three_servers(), scene.newcomer("server-0", SERVER, created=1.0))
    observed = scene.with_host(scene.dead(observed, "server-2"), "server-1", deleting_since=6000.0)
    decision = decide(observed)
    assert scene.hosts_of(decision, Mark) == ["server-3"]
    assert not scene.acts(decision, Deliver)


def test_second_init_node_is_not_chosen_while_first_may_have_started() -> None:
    first = scene.newcomer(
        "all-1", ALL, init=True, failed="unhealthy", report=scene.host(scene.three_servers(), "server-1").report
    )
    first = msgspec.structs.replace(
        first, report=msgspec.structs.replace(first.report, members=None, state="in-progress")
    )
    decision = decide(scene.fresh(first, scene.newcomer("all-2", ALL)))
    assert not decision.acts
    assert "it would begin a second one" in decision.waits[0].missing


def test_user_label_selects_init_node() -> None:
    observed = scene.fresh(
        scene.newcomer("all-1", ALL, machine_id="aa"),
        scene.newcomer("all-2", ALL, machine_id="bb"),
        cluster=plans.cluster(init_machine_id="bb"),
    )
    assert scene.hosts_of(decide(observed), Mark) == ["all-2"]


def test_missing_user_selected_init_node_is_reported() -> None:
    observed = scene.fresh(scene.newcomer("all-1", ALL), cluster=plans.cluster(init_machine_id="bb"))
    decision = decide(observed)
    assert not decision.acts
    assert "bb" in decision.waits[0].missing


def test_election_waits_for_initial_machines_and_names_missing_ones() -> None:
    pools = (Pool(name="all", roles=ALL, replicas=3), Pool(name="worker", roles=WORKER, replicas=1))
    hosts = (scene.newcomer("all-1", ALL), scene.newcomer("all-2", ALL, connected=False))
    decision = decide(scene.fresh(*hosts, pools=pools))
    assert not decision.acts
    said = decision.waits[0].missing
    missing = "pool all: 1 of 3 (all-2: its agent has not connected yet, 1 not created yet)"
    assert said == f"{missing}; pool worker: 0 of 1 (1 not created yet)"
    assert decision.look_again == 600.0


def test_election_proceeds_without_missing_machines_after_timeout() -> None:
    pools = (Pool(name="all", roles=ALL, replicas=2),)
    hosts = (scene.newcomer("all-1", ALL), scene.newcomer("all-2", ALL, failed="no quota"))
    decision = decide(scene.fresh(*hosts, pools=pools, now=5601.0))
    (mark,) = scene.acts(decision, Mark)
    assert mark.host == "all-1"
    assert "it begins without pool all: 1 of 2 (all-2: has failed: no quota)" in mark.why


def test_election_waits_for_control_plane_machine() -> None:
    decision = decide(scene.fresh(scene.newcomer("etcd-1", scene.ETCD)))
    assert not decision.acts
    assert decision.waits[0].missing == "no machine has the role control plane yet"
