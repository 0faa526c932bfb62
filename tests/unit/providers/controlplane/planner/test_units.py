"""Components that outlive their unit: a server counts as restarted when its unit is active again, by a probe of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from remuda.providers.controlplane.planner import progress
from remuda.providers.controlplane.planner.decision import Deliver
from remuda.providers.controlplane.planner.observation import Observation, UnitStatus
from tests.unit.providers.controlplane.planner import scene
from tests.unit.providers.controlplane.planner.plans import decide
from tests.unit.providers.controlplane.planner.scene import CONTROL_PLANE, ETCD, SERVER, WORKER

RKE2, NEWER = "v1.36.3+rke2r1", "v1.36.4+rke2r1"


def servers() -> Observation:
    return scene.settled(("server", SERVER, 3), ("worker", WORKER, 1), version=RKE2)


def split() -> Observation:
    return scene.settled(("etcd", ETCD, 3), ("plane", CONTROL_PLANE, 2), ("worker", WORKER, 1), version=RKE2)


def activating(observed: Observation, name: str) -> Observation:
    """Its unit is not active; what the process before has started answers."""
    probes = dict(scene.host(observed, name).report.probes) | {"rke2-server": False}
    return scene.with_host(observed, name, report={"probes": probes})


def upgraded(observed: Observation) -> Observation:
    return scene.with_spec(observed, version=NEWER)


def test_next_server_is_not_restarted_while_the_unit_of_another_is_activating() -> None:
    observed = upgraded(servers())
    (first,) = scene.acts(decide(observed), Deliver)
    applied = {"plan": first.plan, "applied": first.plan, "state": "succeeded"}
    observed = activating(scene.with_host(observed, first.host, report=applied), first.host)
    decision = decide(observed)
    assert not scene.acts(decision, Deliver)
    wait = decision.hosts[first.host].wait
    assert wait is not None
    assert wait.missing == "waiting for probes: rke2-server"
    probes = dict(scene.host(observed, first.host).report.probes) | {"rke2-server": True}
    assert scene.hosts_of(decide(scene.with_host(observed, first.host, report={"probes": probes})), Deliver)


def first_etcd(**unit: Any) -> Observation:
    """A cluster whose first host, with etcd alone, has applied its plan, and that has no API yet."""
    observed = split()
    etcd = scene.host(observed, "etcd-1")
    member = [one for one in etcd.report.members or () if one.name.startswith("etcd-1-")]
    observed = scene.with_host(observed, "etcd-1", node=None, report={"members": tuple(member)} | unit)
    fresh = [host for host in observed.hosts if host.name == "etcd-1"]
    fresh += [scene.newcomer(name, roles) for name, roles in (("etcd-8", ETCD), ("plane-9", CONTROL_PLANE))]
    return msgspec.structs.replace(observed, hosts=fresh, pools=(), initialized=False, reachable=False)


def test_etcd_only_host_is_settled_without_unit_until_api_exists() -> None:
    observed = activating(first_etcd(), "etcd-1")
    etcd = scene.host(observed, "etcd-1")
    assert progress.is_settled(observed, etcd)
    decision = decide(observed)
    assert decision.hosts["etcd-1"].up_to_date
    assert {"etcd-8", "plane-9"} <= set(scene.hosts_of(decision, Deliver))
    later = msgspec.structs.replace(observed, initialized=True)
    assert not progress.is_settled(later, etcd)
    assert not decide(later).hosts["etcd-1"].up_to_date


def test_etcd_only_host_reports_no_failure_until_api_exists() -> None:
    """Else it would get newer intent out of turn."""
    observed = activating(first_etcd(), "etcd-1")
    assert not progress.reports_failure(observed, scene.host(observed, "etcd-1"))
    assert progress.reports_failure(msgspec.structs.replace(observed, initialized=True), observed.hosts[0])


@pytest.mark.parametrize("name", ["etcd-1", "plane-4"])
def test_inactive_unit_is_awaited_once_api_exists(name: str) -> None:
    observed = activating(split(), name)
    wait = decide(observed).hosts[name].wait
    assert wait is not None
    assert wait.missing == "waiting for probes: rke2-server"


def test_control_plane_unit_is_awaited_before_api_exists() -> None:
    observed = msgspec.structs.replace(activating(split(), "plane-4"), initialized=False)
    assert progress.unhealthy_probes(observed, scene.host(observed, "plane-4")) == ["rke2-server"]


def test_members_with_inactive_units_still_vote() -> None:
    observed = servers()
    for name in ("server-1", "server-2"):
        observed = activating(observed, name)
    silent = msgspec.structs.replace(observed, reachable=False, unanswered_since=observed.now - 60)
    assert decide(silent).lost is None
    dead = {"etcd": False, "rke2-server": False}
    for name in ("server-1", "server-2"):
        silent = scene.with_host(silent, name, report={"probes": dead})
    lost = decide(silent).lost
    assert lost is not None
    assert "reports failing probes: etcd" in lost.missing
    assert "rke2-server" not in lost.missing


def test_split_role_cluster_initializes_with_waiting_units() -> None:
    """Hosts with etcd alone would keep the control plane waiting for ever."""
    observed = split()
    assert observed.initialized
    assert all(host.report.probes["rke2-server"] for host in observed.hosts if host.roles.server)


# ---- a unit that does not run


def with_error(observed: Observation, name: str, **report: Any) -> Observation:
    unit = UnitStatus("activating", "missing required: user: unknown user etcd")
    return scene.with_host(observed, name, report={"unit": unit, **report})


@pytest.mark.parametrize(("name", "unit", "probes"), [("server-1", "rke2-server", 3), ("worker-4", "rke2-agent", 1)])
def test_wait_for_probes_names_the_error_of_the_unit(name: str, unit: str, probes: int) -> None:
    decision = decide(with_error(servers(), name, probes={}))
    wait = decision.hosts[name].wait
    assert wait is not None
    waiting, _, why = wait.missing.partition("; ")
    assert waiting.startswith("waiting for probes: ")
    assert waiting.count(",") >= probes - 1
    assert why == f"{unit} is activating: missing required: user: unknown user etcd"
    assert why in decision.stage


def test_wait_for_etcd_and_for_the_kubelet_name_the_error_of_the_unit() -> None:
    observed = with_error(scene.without_member(servers(), "server-3"), "server-3")
    wait = decide(observed).hosts["server-3"].wait
    assert wait is not None
    assert wait.missing.endswith("voting member; rke2-server is activating: missing required: user: unknown user etcd")
    observed = with_error(servers(), "worker-4")
    old = msgspec.structs.replace(scene.host(observed, "worker-4").node, kubelet_version="v1.35.0+rke2r1")  # type: ignore[type-var]
    wait = decide(scene.with_host(observed, "worker-4", node=old)).hosts["worker-4"].wait
    assert wait is not None
    assert wait.missing.startswith("waiting for kubelet to update; rke2-agent is activating: ")


def test_settled_host_ignores_earlier_unit_error() -> None:
    assert not decide(with_error(servers(), "server-1")).waits
