"""Named scenarios of declared clusters, on hosts that are processes: docs/scenarios.md lists them.

One `remuda up` serves all of them. Where scenarios can share a cluster they do: each begins with the cluster as it was
declared at first, and leaves it so. Those of workers and of hosts that register themselves are in files of their own,
each with an `up` of its own, so that they can run at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.scenarios import declared, roles
from tests.lab.cluster_life import live
from tests.lab.clusters import DeclaredCluster, Fleet, pool


def test_full_lifecycle_with_three_servers_and_two_workers(fleet: Fleet) -> None:
    live(fleet, "prairie", servers=3, workers=2)


# ---- shapes --------------------------------------------------------------------------------------------------------


def test_single_node_with_all_roles_runs_untainted(fleet: Fleet) -> None:
    with declared(DeclaredCluster(fleet, "single", [pool("all", 1, "ecw")]), 1) as single:
        (node,) = single.nodes().values()
        assert roles(node) == "ec"
        assert node["spec"].get("taints", []) == []
        single.is_well()


def test_three_nodes_with_all_roles_become_servers(fleet: Fleet) -> None:
    with declared(DeclaredCluster(fleet, "three", [pool("all", 3, "ecw")]), 3) as three:
        assert sorted(map(roles, three.nodes().values())) == ["ec", "ec", "ec"]


@pytest.fixture(scope="module")
def split_roles_cluster(fleet: Fleet) -> Iterator[DeclaredCluster]:
    """Each role on nodes of its own."""
    cluster = DeclaredCluster(fleet, "apart", [pool("etcd", 3, "e"), pool("plane", 1, "c"), pool("work", 1, "w")])
    with declared(cluster, 5):
        yield cluster


def test_unique_roles_on_five_nodes_label_and_taint_nodes(split_roles_cluster: DeclaredCluster) -> None:
    nodes = split_roles_cluster.nodes()
    for name, expected in (("etcd", "e"), ("plane", "c"), ("work", "")):
        assert {
            roles(nodes[split_roles_cluster.node_of(machine)]) for machine in split_roles_cluster.machines(name)
        } == {expected}
    servers = [node for node in nodes.values() if roles(node)]
    assert all(node["spec"].get("taints") for node in servers), "servers without the worker's role take no Pods"


def test_etcd_pool_scaled_down_to_one_still_accepts_writes(split_roles_cluster: DeclaredCluster) -> None:
    before = split_roles_cluster.identities()
    split_roles_cluster.pools["etcd"]["quantity"] = 1
    split_roles_cluster.apply()
    nodes = split_roles_cluster.has_nodes(3)
    assert [roles(node) for node in nodes.values()].count("e") == 1
    assert split_roles_cluster.identities().items() <= before.items(), "those that stay are those that were there"
    # What is left still takes writes, so its one member is a majority.
    made = {"metadata": {"name": "after"}, "data": {"grass": "green"}}
    assert split_roles_cluster.ask("POST", "/api/v1/namespaces/default/configmaps", made).code == 201


# ---- what nodes bear -----------------------------------------------------------------------------------------------


def test_data_directories_replace_default_paths(fleet: Fleet) -> None:
    places = {"systemAgent": "/opt/agent", "provisioning": "/opt/capr", "k8sDistro": "/opt/nano"}
    with declared(DeclaredCluster(fleet, "moved", [pool("all", 1, "ecw")], dataDirectories=places), 1):
        (root,) = fleet.hosts.glob("process/moved-*/root")
        assert {one.name for one in (root / "opt").iterdir()} == {"agent", "capr", "nano"}
        assert (root / "opt/nano/server/db").exists()
        usual = root / "var/lib/rancher"
        assert not usual.exists() or [one.name for one in usual.rglob("*") if one.is_file()] == []


# ---- pools ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"autoscalingMinSize": 1}, "autoscalingMaxSize, or neither"),
        ({"autoscalingMaxSize": 1}, "autoscalingMaxSize, or neither"),
        ({"autoscalingMinSize": 3, "autoscalingMaxSize": 2}, "must be from 0 to autoscalingMaxSize, which is 2"),
        ({"autoscalingMinSize": -1, "autoscalingMaxSize": 2}, "autoscalingMinSize"),
        ({"autoscalingMinSize": 1, "autoscalingMaxSize": 0}, "autoscalingM"),
        ({"autoscalingMinSize": 0, "autoscalingMaxSize": 2}, "more than 0 for etcd and control plane"),
    ],
)
def test_invalid_autoscaling_fields_are_rejected(fleet: Fleet, sizes: dict[str, int], words: str) -> None:
    refused = fleet.put(DeclaredCluster(fleet, "sized", [pool("all", 1, "ecw", **sizes)]).manifest())
    assert refused.code in (400, 403, 422), refused
    assert words in refused.body["message"]
