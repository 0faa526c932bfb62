from __future__ import annotations

import json

import msgspec

from remuda.providers.controlplane.planner.decision import Deliver
from tests.unit.providers.controlplane.planner import scene
from tests.unit.providers.controlplane.planner.plans import decide
from tests.unit.providers.controlplane.planner.scene import ETCD, SERVER, WORKER, EtcdMember


def _list(decision: object, name: str) -> list[str]:
    (deliver,) = [act for act in scene.acts(decision, Deliver) if act.host == name]  # type: ignore[arg-type]
    found: list[str] = json.loads(deliver.plan)["join"]
    return found


def test_join_list_contains_all_servers_including_dead_one() -> None:
    """All servers are in the list, so whoever joins takes one that answers."""
    observed = scene.with_newcomer(scene.dead(scene.three_servers(), "server-1"), scene.newcomer("worker-9", WORKER))
    urls = _list(decide(observed), "worker-9")
    assert len(urls) == 3
    assert all(url.startswith("https://10.0.0.") and url.endswith(":6443") for url in urls)


def test_join_list_excludes_deleting_servers_and_puts_failed_last() -> None:
    observed = scene.with_newcomer(scene.three_servers(), scene.newcomer("worker-9", WORKER))
    observed = scene.with_host(observed, "server-3", failed="unhealthy")
    observed = scene.with_host(observed, "server-2", deleting_since=6000.0)
    urls = [scene.host(observed, name).internal_addresses[0] for name in ("server-1", "server-3")]
    assert _list(decide(observed), "worker-9") == [f"https://{address}:6443" for address in urls]


def test_last_server_stays_in_join_list_while_deleting() -> None:
    observed = scene.settled(("server", SERVER, 1), ("worker", WORKER, 1))
    observed = scene.with_host(observed, "server-1", deleting_since=6000.0)
    observed = scene.with_newcomer(observed, scene.newcomer("server-9", SERVER))
    assert _list(decide(observed), "server-9") == ["https://10.0.0.2:6443"]


def test_server_health_does_not_change_plans() -> None:
    assert not decide(scene.dead(scene.three_servers(), "server-1")).acts


def test_ipv6_addresses_are_bracketed() -> None:
    observed = scene.with_host(scene.three_servers(), "server-1", internal_addresses=("fd00::1",))
    observed = scene.with_newcomer(observed, scene.newcomer("worker-9", WORKER))
    assert "https://[fd00::1]:6443" in _list(decide(observed), "worker-9")


def test_members_join_one_at_a_time() -> None:
    observed = scene.with_newcomer(scene.three_servers(), scene.newcomer("server-8", SERVER))
    observed = scene.with_newcomer(observed, scene.newcomer("server-9", SERVER))
    decision = decide(observed)
    assert [name for name in scene.hosts_of(decision, Deliver) if name in ("server-8", "server-9")] == ["server-8"]
    wait = decision.hosts["server-9"].wait
    assert wait is not None
    assert "server-8 is joining" in wait.missing


def test_join_waits_while_member_is_unhealthy_or_learner() -> None:
    """Dangling or never-started members block every join, and nobody says so."""
    observed = scene.with_newcomer(scene.three_servers(), scene.newcomer("etcd-9", ETCD))
    decision = decide(scene.dead(observed, "server-3"))
    assert "etcd-9" not in scene.hosts_of(decision, Deliver)
    wait = decision.hosts["etcd-9"].wait
    assert wait is not None
    assert "server-3-1a2b3c" in wait.missing
    for host in observed.hosts:
        if host.report.members:
            members = [
                EtcdMember(m.name, m.address, learner=m.name.startswith("server-3"), healthy=True)
                for m in host.report.members
            ]
            observed = scene.with_host(observed, host.name, report={"members": members})
    decision = decide(observed)
    assert "etcd-9" not in scene.hosts_of(decision, Deliver)


def test_silent_joining_host_blocks_others_only_until_timeout() -> None:
    observed = scene.with_newcomer(scene.three_servers(), scene.newcomer("server-8", SERVER))
    first = scene.acts(decide(observed), Deliver)
    plan = next(act.plan for act in first if act.host == "server-8")
    observed = scene.with_host(observed, "server-8", report={"plan": plan, "state": "pending", "delivered": 6000.0})
    observed = scene.with_newcomer(observed, scene.newcomer("server-9", SERVER))
    observed = msgspec.structs.replace(observed, now=6100.0)
    assert "server-9" not in scene.hosts_of(decide(observed), Deliver)
    late = msgspec.structs.replace(observed, now=6601.0)
    assert "server-9" in scene.hosts_of(decide(late), Deliver)


def test_disagreeing_member_lists_block_joins() -> None:
    observed = scene.with_newcomer(scene.three_servers(), scene.newcomer("server-9", SERVER))
    members = (*(scene.host(observed, "server-2").report.members or ()), EtcdMember("ghost-1a2b3c", "", healthy=True))
    observed = scene.with_host(observed, "server-2", report={"members": members})
    decision = decide(observed)
    assert "server-9" not in scene.hosts_of(decision, Deliver)
