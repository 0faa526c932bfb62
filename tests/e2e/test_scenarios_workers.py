"""Named scenarios of the workers of one declared cluster, on hosts that are processes: docs/scenarios.md lists them.

They share a cluster: each begins with it as it was declared at first, and leaves it so.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.scenarios import declared, labels, roles
from tests.lab.clusters import BUDGETS, MACHINES, PODS, SETS, DeclaredCluster, Fleet, is_ready, pool
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.up import Json

TAINT = {"key": "herd", "value": "wild", "effect": "NoSchedule"}
OTHER = {"key": "herd", "value": "tame", "effect": "PreferNoSchedule"}
DELETE_ME = "cluster.x-k8s.io/delete-machine"


@pytest.fixture(scope="module")
def cluster(fleet: Fleet) -> Iterator[DeclaredCluster]:
    """A server, and workers that are emptied before anything is done to them."""
    drain = {"enabled": True, "force": True, "timeout": 600}
    cluster = DeclaredCluster(
        fleet,
        "ranch",
        [pool("server", 1, "ec"), pool("worker", 3, "w", drainBeforeDelete=True)],
        upgradeStrategy={"workerConcurrency": "1", "workerDrainOptions": drain},
    )
    with declared(cluster, 4):
        yield cluster


def test_cluster_has_one_server_and_three_workers(cluster: DeclaredCluster) -> None:
    assert sorted(map(roles, cluster.nodes().values())) == ["", "", "", "ec"]


# ---- what nodes bear -----------------------------------------------------------------------------------------------


def test_pool_taints_change_on_nodes_in_place(cluster: DeclaredCluster) -> None:
    before = cluster.identities()

    def borne() -> list[list[Json]]:
        nodes = cluster.nodes()
        found = [nodes.get(cluster.node_of(machine)) or {} for machine in cluster.machines("worker")]
        return [[one for one in node.get("spec", {}).get("taints") or [] if one["key"] == "herd"] for node in found]

    for taints in ([TAINT], [OTHER], []):
        cluster.pools["worker"]["taints"] = taints
        cluster.apply()
        cluster.until(lambda wanted=taints: borne() == [wanted] * 3, f"workers bear {taints}")  # type: ignore[misc]
    del cluster.pools["worker"]["taints"]
    cluster.apply()
    cluster.has_nodes(4)
    assert cluster.identities() == before


# ---- pools ---------------------------------------------------------------------------------------------------------


def test_machine_set_template_annotations_reach_existing_machines(cluster: DeclaredCluster) -> None:
    """What a pool says of nodes is in the templates of its MachineSets, and reaches the Machines that are there."""
    before = cluster.identities()
    cluster.pools["worker"] |= {"labels": {"tier": "web"}, "machineDeploymentAnnotations": {"owner": "ben"}}
    cluster.apply()

    def noted(meta: Json) -> bool:
        return '"tier":"web"' in str((meta.get("annotations") or {}).get("rke.cattle.io/labels")).replace(" ", "")

    def templates() -> list[Json]:
        sets = [one for one in cluster.fleet.items(SETS) if one["metadata"]["name"].startswith("ranch-worker-")]
        return [one["spec"]["template"]["metadata"] for one in sets if one["spec"].get("replicas")]

    cluster.until(lambda: list(map(noted, templates())) == [True], "the MachineSet's template says so")
    cluster.until(
        lambda: all(noted(one["metadata"]) for one in cluster.machines("worker").values()), "the Machines say so"
    )
    cluster.until(
        lambda: sum(labels(node).get("tier") == "web" for node in cluster.nodes().values()) == 3, "the Nodes say so"
    )
    assert cluster.identities() == before
    for field in ("labels", "machineDeploymentAnnotations"):
        del cluster.pools["worker"][field]
    cluster.apply()
    cluster.until(lambda: not any("tier" in labels(node) for node in cluster.nodes().values()), "the label is gone")
    cluster.has_nodes(4)


def test_machine_set_scale_down_deletes_marked_then_oldest_machine(cluster: DeclaredCluster) -> None:
    """The one somebody has marked goes first, else the oldest."""
    by_age = _by_age(cluster)
    marked, oldest = by_age[-1], by_age[0]
    cluster.fleet.patch(f"{MACHINES}/{marked}", {"metadata": {"annotations": {DELETE_ME: "true"}}})
    _scale_workers(cluster, 2)
    assert set(cluster.machines("worker")) == set(by_age) - {marked}
    _scale_workers(cluster, 3)
    _scale_workers(cluster, 2)
    gone = set(by_age) - set(cluster.machines("worker"))
    assert gone in ({marked, oldest}, {marked, by_age[1]}), "those two are of the same second, perhaps"
    _scale_workers(cluster, 3)


def _by_age(cluster: DeclaredCluster) -> list[str]:
    machines = cluster.machines("worker").items()
    return [
        name for name, one in sorted(machines, key=lambda pair: (pair[1]["metadata"]["creationTimestamp"], pair[0]))
    ]


def _scale_workers(cluster: DeclaredCluster, number: int) -> None:
    cluster.pools["worker"]["quantity"] = number
    cluster.apply()
    cluster.has_nodes(number + 1)


# ---- drains --------------------------------------------------------------------------------------------------------


@contextmanager
def guarded_pod(cluster: DeclaredCluster, node: str) -> Iterator[None]:
    """A Pod there that may not be evicted; at the end it may."""
    cluster.run_guarded_pod("mare", node)
    yield
    assert cluster.ask("GET", f"{PODS}/mare").code == 200, "it is still there while its budget says so"
    assert cluster.ask("DELETE", f"{BUDGETS}/mare").code == 200
    cluster.until(lambda: cluster.ask("GET", f"{PODS}/mare").code == 404, "the Pod is evicted")


def test_deleted_machine_is_removed_only_after_drain(cluster: DeclaredCluster) -> None:
    """A machine that is deleted goes when its Pods are gone, not before."""
    victim = _by_age(cluster)[0]
    node = cluster.node_of(victim)
    cluster.fleet.patch(f"{MACHINES}/{victim}", {"metadata": {"annotations": {DELETE_ME: "true"}}})
    with guarded_pod(cluster, node):
        cluster.pools["worker"]["quantity"] = 2
        cluster.apply()
        cluster.until(lambda: _cordoned(cluster, node), "the Node is cordoned")
        cluster.until(lambda: "mare" in str(cluster.machines()[victim]["status"]), "the Machine names the Pod")
        cluster.until(lambda: is_ready(cluster.nodes().get(node) or {}), "its host runs")
    cluster.has_nodes(3)
    assert victim not in cluster.machines()
    _scale_workers(cluster, 3)


def test_config_change_drains_node_before_restart_and_keeps_machine(cluster: DeclaredCluster) -> None:
    """A node is emptied before its services restart, comes back, and is the same machine."""
    before = cluster.identities()
    node = cluster.node_of(_by_age(cluster)[0])
    started = _running_since(cluster, node)
    with guarded_pod(cluster, node):
        cluster.config["machineGlobalConfig"] = {"debug": True}
        cluster.apply()
        cluster.until(lambda: _cordoned(cluster, node), "the Node is cordoned")
        cluster.until(lambda: "mare" in cluster.why()[1], "it is told which Pod is waited for")
        assert _running_since(cluster, node) == started, "it has not been restarted"
    cluster.has_nodes(4)
    nodes = cluster.nodes()
    assert not any(one["spec"].get("unschedulable") for one in nodes.values())
    assert _running_since(cluster, node) != started
    assert cluster.identities() == before


def _cordoned(cluster: DeclaredCluster, node: str) -> bool:
    """Not while its API cannot be asked, which happens when the only server restarts."""
    return bool((cluster.nodes().get(node) or {"spec": {}})["spec"].get("unschedulable"))


def _running_since(cluster: DeclaredCluster, node: str) -> str:
    """The process of the node's unit."""
    (root,) = cluster.fleet.hosts.glob(f"process/{node}/root")
    ask = [str(root / "usr/local/bin/systemctl"), "show", "-p", "MainPID", "--value", "nano-agent"]
    return subprocess.run(ask, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True).stdout.strip()
