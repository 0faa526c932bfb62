"""Declared clusters on hosts with systemd and networks of their own: made, changed in place, scaled, healed, deleted.

One cluster of three servers and two workers lives through all of it, test after test: each finds it well and leaves it
so. A second one has a bridge and a balancer of its own, and hosts that do everything; it is made while the first one
waits for hosts that have died.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.cluster_on_hosts import ClusterOnHosts, fleet_on
from tests.lab.clusters import BUDGETS, NAMESPACE, NEWER, PODS, VERSION, Fleet, is_ready, pool
from tests.lab.drivers import processes_below
from tests.lab.hosts import Network, interfaces, machines, open_network
from tests.lab.nano_plans import version_of

Json = dict[str, Any]

SERVERS, WORKERS = "servers", "workers"
# A slow machine may keep a living kubelet from reporting, so only the test of dead hosts is in a hurry.
HEALTH = {"unhealthyNodeTimeout": "15m", "nodeStartupTimeout": "30m"}
SOON_UNHEALTHY = {**HEALTH, "unhealthyNodeTimeout": "5s"}
QUICK_TO_NOTICE = {"kube-controller-manager-arg": ["node-monitor-grace-period=20s"]}
TAINT = {"key": "herd", "value": "wild", "effect": "NoSchedule"}
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
RKE_CLUSTERS = f"/apis/rke.cattle.io/v1/namespaces/{NAMESPACE}/rkeclusters"
HEALING_SECONDS = 800.0  # a host that cannot answer is given two minutes to stop its services


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with open_network(tmp_path_factory.mktemp("network")) as found:
        yield found


@pytest.fixture(scope="module")
def fleet(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_on(network) as found:
        found.add_nano(tmp_path_factory.mktemp("bundles"), VERSION, NEWER)
        yield found


@pytest.fixture(scope="module")
def cluster(fleet: Fleet, network: Network) -> Iterator[ClusterOnHosts]:
    found = ClusterOnHosts(
        fleet,
        "prairie",
        [pool(SERVERS, 3, "ec", **HEALTH), pool(WORKERS, 2, "w", labels={"tier": "web"}, **HEALTH)],
        {"bridge": network.bridge, "subnet": str(network.subnet)},
        machineGlobalConfig={**QUICK_TO_NOTICE},
        upgradeStrategy={"workerConcurrency": "2"},
    )
    found.apply()
    try:
        found.has_nodes(5)
        assert found.ask("POST", CONFIG_MAPS, {"metadata": {"name": "kept"}}).code == 201
        yield found
    finally:
        found.delete()
    assert interfaces(network.bridge) == set()


@pytest.fixture(scope="module")
def second_cluster(fleet: Fleet) -> Iterator[ClusterOnHosts]:
    """Applied, and not waited for."""
    found = ClusterOnHosts(fleet, "pampa", [pool("all", 3, "ecw")], {}, clusterInfrastructure={"driver": "nspawn"})
    found.apply()
    try:
        yield found
    finally:
        found.delete()


def test_one_manifest_becomes_a_cluster_of_three_servers_and_two_workers(
    cluster: ClusterOnHosts, network: Network
) -> None:
    cluster.until(lambda: cluster.why() == (0, "Cluster prairie is ready\n"), "remuda why reports that it is ready")
    assert cluster.voters() == {cluster.node_of(name) for name in cluster.machines(SERVERS)}
    assert {version_of(node) for node in cluster.nodes().values()} == {VERSION}
    assert all((cluster.folder(name) / "leader").exists() for name in cluster.machines())
    assert len(interfaces(network.bridge)) == 5


def test_every_server_has_a_tunnel_to_the_manager_and_no_worker_has_one(cluster: ClusterOnHosts) -> None:
    folder = "/var/lib/rancher/capr/tunnel"
    cluster.until(
        lambda: all(
            '"connected_to": "wss://' in cluster.file(name, f"{folder}/status.json")
            for name in cluster.machines(SERVERS)
        ),
        "every server has a tunnel",
    )
    for name in cluster.machines(SERVERS):
        assert cluster.run(name, "systemctl is-active remuda-tunnel").strip() == "active"
    assert not [name for name in cluster.machines(WORKERS) if cluster.file(name, f"{folder}/config.json")]


def test_config_and_registries_change_in_place(cluster: ClusterOnHosts) -> None:
    cluster.config["machineGlobalConfig"]["kubelet-arg"] = ["max-pods=42"]
    cluster.config["registries"] = {"mirrors": {"docker.io": {"endpoint": ["https://mirror.prairie"]}}}
    cluster.changes_in_place(
        lambda node: "max-pods=42" in node["metadata"]["annotations"]["nano.io/node-args"],
        "every kubelet is told of max-pods",
    )
    for name in cluster.machines():
        assert "https://mirror.prairie" in cluster.file(name, "/etc/rancher/nano/registries.yaml")


def test_labels_and_taints_of_a_pool_change_in_place(cluster: ClusterOnHosts) -> None:
    workers = {cluster.node_of(name) for name in cluster.machines(WORKERS)}
    cluster.pools[WORKERS] |= {"labels": {"tier": "db"}, "taints": [TAINT]}

    def shows(node: Json) -> bool:
        is_worker = node["metadata"]["name"] in workers
        has = node["metadata"]["labels"].get("tier") == "db" and TAINT in node["spec"].get("taints", ())
        return has == is_worker

    cluster.changes_in_place(shows, "the Nodes of the workers, and only they, have label and taint")


def test_version_upgrade_in_place_waits_for_pod_disruption_budget(cluster: ClusterOnHosts) -> None:
    occupied = cluster.node_of(min(cluster.machines(WORKERS)))
    cluster.run_guarded_pod("busy", occupied)
    before = (cluster.identities(), cluster.running())
    cluster.version = NEWER
    cluster.config["upgradeStrategy"] = {
        "workerConcurrency": "2",
        "workerDrainOptions": {"enabled": True, "force": True, "timeout": 300},
    }
    cluster.apply()
    others = set(cluster.nodes()) - {occupied}

    def all_but_one() -> bool:
        nodes = cluster.nodes()
        return {name for name, node in nodes.items() if version_of(node) == NEWER and is_ready(node)} == others

    cluster.until(all_but_one, "all but the occupied Node have the new version")
    cluster.until(lambda: "default/busy" in cluster.why()[1], "the Pod that keeps it from going on is told")
    held = cluster.nodes()[occupied]
    assert (version_of(held), held["spec"].get("unschedulable")) == (VERSION, True)
    assert cluster.ask("GET", f"{PODS}/busy").code == 200

    assert cluster.ask("DELETE", f"{BUDGETS}/busy").code == 200
    cluster.until(lambda: {*map(version_of, cluster.nodes().values())} == {NEWER}, "the last Node has the new version")
    nodes = cluster.has_nodes(5)
    assert cluster.ask("GET", f"{PODS}/busy").code == 404
    assert not any(node["spec"].get("unschedulable") for node in nodes.values())
    assert (cluster.identities(), cluster.running()) == before


def test_pool_scaling_adds_and_removes_nodes_and_etcd_members(cluster: ClusterOnHosts) -> None:
    first = cluster.identities()
    cluster.pools[SERVERS]["quantity"], cluster.pools[WORKERS]["quantity"] = 4, 3
    cluster.apply()
    cluster.has_nodes(7)
    grown = cluster.identities()
    assert first.items() <= grown.items()
    cluster.until(lambda: len(cluster.voters()) == 4, "the new server is a member that votes")

    cluster.pools[SERVERS]["quantity"], cluster.pools[WORKERS]["quantity"] = 3, 2
    cluster.apply()
    cluster.has_nodes(5)
    assert cluster.identities().items() <= grown.items(), "whoever stayed is who it was"
    assert cluster.voters() == {cluster.node_of(name) for name in cluster.machines(SERVERS)}
    assert cluster.ask("GET", f"{CONFIG_MAPS}/kept").code == 200
    assert {host.name for host in (cluster.fleet.hosts / "nspawn").glob("prairie-*")} == {
        cluster.folder(name).name for name in cluster.machines()
    }


@pytest.mark.usefixtures("second_cluster")
def test_dead_hosts_are_replaced(cluster: ClusterOnHosts) -> None:
    before = cluster.identities()
    published = cluster.workload().url
    others = set(cluster.machines(SERVERS)) - {cluster.leader()}
    server = max(others, key=lambda name: f"https://{cluster.address(name)}:6443" == published)  # the way in, if it may
    worker = min(cluster.machines(WORKERS))
    for each in (SERVERS, WORKERS):
        cluster.pools[each].update(SOON_UNHEALTHY)
    cluster.apply()
    cluster.kill(server)
    cluster.kill(worker)
    cluster.until(lambda: not {server, worker} & _wanted(cluster), "the dead Machines are deleted", HEALING_SECONDS)
    for each in (SERVERS, WORKERS):
        cluster.pools[each].update(HEALTH)
    cluster.apply()
    cluster.until(lambda: not {server, worker} & set(cluster.machines()), "the dead Machines are gone", HEALING_SECONDS)
    cluster.has_nodes(5)
    kept = {name: one for name, one in before.items() if name not in (server, worker)}
    assert kept.items() <= cluster.identities().items()
    assert cluster.voters() == {cluster.node_of(name) for name in cluster.machines(SERVERS)}
    assert cluster.ask("GET", f"{CONFIG_MAPS}/kept").code == 200


def test_all_role_hosts_on_dedicated_bridge_upgrade_behind_load_balancer(second_cluster: ClusterOnHosts) -> None:
    fleet = second_cluster.fleet
    nodes = second_cluster.has_nodes(3)
    assert second_cluster.voters() == set(nodes)
    endpoint = fleet.http("GET", f"{RKE_CLUSTERS}/pampa").body["spec"]["controlPlaneEndpoint"]
    assert second_cluster.workload().url == f"https://{endpoint['host']}:{endpoint['port']}"
    (about,) = (fleet.hosts / "nspawn/.clusters").glob("*/cluster.json")
    made = json.loads(about.read_text())
    subnet = ipaddress.IPv4Network(made["subnet"])
    addresses = {one["address"] for node in nodes.values() for one in node["status"]["addresses"]} - set(nodes)
    assert {endpoint["host"]} & addresses == set()
    assert all(ipaddress.IPv4Address(one) in subnet for one in {endpoint["host"], *addresses})
    assert len(interfaces(made["bridge"])) == 3

    second_cluster.version = NEWER
    second_cluster.changes_in_place(lambda node: version_of(node) == NEWER, "every Node has the new version")

    second_cluster.delete()
    second_cluster.until(lambda: not [one for one in fleet.everything() if "pampa" in one], "no object is left")
    assert [*(fleet.hosts / "nspawn").glob("pampa*"), *about.parents[1].iterdir()] == []
    assert processes_below(fleet.hosts / "nspawn/.clusters") == []
    assert made["bridge"] not in os.listdir("/sys/class/net")


def test_deleted_cluster_leaves_nothing(
    cluster: ClusterOnHosts, second_cluster: ClusterOnHosts, network: Network
) -> None:
    second_cluster.delete()  # if its own test has not: nothing must be left of either
    cluster.delete()
    cluster.leaves_nothing()
    assert machines(cluster.fleet.hosts) == []
    assert interfaces(network.bridge) == set()


def _wanted(cluster: ClusterOnHosts) -> set[str]:
    """The Machines that nobody has deleted."""
    return {name for name, one in cluster.machines().items() if "deletionTimestamp" not in one["metadata"]}
