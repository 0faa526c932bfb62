from __future__ import annotations

import msgspec

from remuda.providers.controlplane.planner.decision import Deliver, Mark
from remuda.providers.controlplane.planner.observation import Pool
from tests.unit.providers.controlplane.planner import plans, scene
from tests.unit.providers.controlplane.planner.plans import decide
from tests.unit.providers.controlplane.planner.scene import ALL, SERVER, WORKER


def test_every_candidate_is_named_with_why_it_is_not_the_init_node() -> None:
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


def test_the_init_node_stays_what_it_is() -> None:
    observed = scene.dead(scene.three_servers(), "server-1")
    assert not scene.acts(decide(observed), Mark)


def test_the_mark_goes_to_a_member_that_is_well_never_to_a_newcomer() -> None:
    """A newcomer that is told to begin would begin a second cluster."""
    observed = scene.with_newcomer(scene.three_servers(), scene.newcomer("server-0", SERVER, created=1.0))
    observed = scene.with_host(scene.dead(observed, "server-2"), "server-1", deleting_since=6000.0)
    decision = decide(observed)
    assert scene.hosts_of(decision, Mark) == ["server-3"]
    assert not scene.acts(decision, Deliver)


def test_while_the_host_that_was_to_begin_may_have_begun_nobody_else_does() -> None:
    first = scene.newcomer(
        "all-1", ALL, init=True, failed="unhealthy", report=scene.host(scene.three_servers(), "server-1").report
    )
    first = msgspec.structs.replace(
        first, report=msgspec.structs.replace(first.report, members=None, state="in-progress")
    )
    decision = decide(scene.fresh(first, scene.newcomer("all-2", ALL)))
    assert not decision.acts
    assert "it would begin a second one" in decision.waits[0].missing


def test_the_user_names_the_init_node() -> None:
    observed = scene.fresh(
        scene.newcomer("all-1", ALL, machine_id="aa"),
        scene.newcomer("all-2", ALL, machine_id="bb"),
        cluster=plans.cluster(init_machine_id="bb"),
    )
    assert scene.hosts_of(decide(observed), Mark) == ["all-2"]


def test_a_named_init_node_that_is_not_there_is_told() -> None:
    observed = scene.fresh(scene.newcomer("all-1", ALL), cluster=plans.cluster(init_machine_id="bb"))
    decision = decide(observed)
    assert not decision.acts
    assert "bb" in decision.waits[0].missing


def test_it_waits_for_the_machines_first_asked_for_and_names_those_missing() -> None:
    pools = (Pool(name="all", roles=ALL, replicas=3), Pool(name="worker", roles=WORKER, replicas=1))
    hosts = (scene.newcomer("all-1", ALL), scene.newcomer("all-2", ALL, connected=False))
    decision = decide(scene.fresh(*hosts, pools=pools))
    assert not decision.acts
    said = decision.waits[0].missing
    missing = "pool all: 1 of 3 (all-2: its agent has not connected yet, 1 not created yet)"
    assert said == f"{missing}; pool worker: 0 of 1 (1 not created yet)"
    assert decision.look_again == 600.0


def test_after_the_stated_time_it_begins_without_those_missing_and_says_so() -> None:
    pools = (Pool(name="all", roles=ALL, replicas=2),)
    hosts = (scene.newcomer("all-1", ALL), scene.newcomer("all-2", ALL, failed="no quota"))
    decision = decide(scene.fresh(*hosts, pools=pools, now=5601.0))
    (mark,) = scene.acts(decision, Mark)
    assert mark.host == "all-1"
    assert "it begins without pool all: 1 of 2 (all-2: has failed: no quota)" in mark.why


def test_a_cluster_does_not_begin_without_a_control_plane_to_come() -> None:
    decision = decide(scene.fresh(scene.newcomer("etcd-1", scene.ETCD)))
    assert not decision.acts
    assert decision.waits[0].missing == "no machine has the role control plane yet"
