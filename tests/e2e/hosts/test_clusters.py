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

from tests.lab.clusters import BUDGETS, NAMESPACE, NEWER, PODS, VERSION, Fleet, is_ready, pool
from tests.lab.drivers import processes_below
from tests.lab.hosts import Network, interfaces, machines, open_network
from tests.lab.nano_plans import version_of
from tests.lab.on_hosts import OnHosts, fleet_on

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
def prairie(fleet: Fleet, network: Network) -> Iterator[OnHosts]:
    found = OnHosts(
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
def pampa(fleet: Fleet) -> Iterator[OnHosts]:
    """Applied, and not waited for."""
    found = OnHosts(fleet, "pampa", [pool("all", 3, "ecw")], {}, clusterInfrastructure={"driver": "nspawn"})
    found.apply()
    try:
        yield found
    finally:
        found.delete()


def test_one_manifest_becomes_a_cluster_of_three_servers_and_two_workers(prairie: OnHosts, network: Network) -> None:
    prairie.until(lambda: prairie.why() == (0, "Cluster prairie is ready\n"), "remuda why reports that it is ready")
    assert prairie.voters() == {prairie.node_of(name) for name in prairie.machines(SERVERS)}
    assert {version_of(node) for node in prairie.nodes().values()} == {VERSION}
    assert all((prairie.folder(name) / "leader").exists() for name in prairie.machines())
    assert len(interfaces(network.bridge)) == 5


def test_every_server_has_a_tunnel_to_the_manager_and_no_worker_has_one(prairie: OnHosts) -> None:
    folder = "/var/lib/rancher/capr/tunnel"
    prairie.until(
        lambda: all(
            '"connected_to": "wss://' in prairie.file(name, f"{folder}/status.json")
            for name in prairie.machines(SERVERS)
        ),
        "every server has a tunnel",
    )
    for name in prairie.machines(SERVERS):
        assert prairie.run(name, "systemctl is-active remuda-tunnel").strip() == "active"
    assert not [name for name in prairie.machines(WORKERS) if prairie.file(name, f"{folder}/config.json")]


def test_config_and_registries_change_in_place(prairie: OnHosts) -> None:
    prairie.config["machineGlobalConfig"]["kubelet-arg"] = ["max-pods=42"]
    prairie.config["registries"] = {"mirrors": {"docker.io": {"endpoint": ["https://mirror.prairie"]}}}
    prairie.changes_in_place(
        lambda node: "max-pods=42" in node["metadata"]["annotations"]["nano.io/node-args"],
        "every kubelet is told of max-pods",
    )
    for name in prairie.machines():
        assert "https://mirror.prairie" in prairie.file(name, "/etc/rancher/nano/registries.yaml")


def test_labels_and_taints_of_a_pool_change_in_place(prairie: OnHosts) -> None:
    workers = {prairie.node_of(name) for name in prairie.machines(WORKERS)}
    prairie.pools[WORKERS] |= {"labels": {"tier": "db"}, "taints": [TAINT]}

    def shows(node: Json) -> bool:
        is_worker = node["metadata"]["name"] in workers
        has = node["metadata"]["labels"].get("tier") == "db" and TAINT in node["spec"].get("taints", ())
        return has == is_worker

    prairie.changes_in_place(shows, "the Nodes of the workers, and only they, have label and taint")


def test_version_upgrade_in_place_waits_for_pod_disruption_budget(prairie: OnHosts) -> None:
    occupied = prairie.node_of(min(prairie.machines(WORKERS)))
    prairie.run_guarded_pod("busy", occupied)
    before = (prairie.identities(), prairie.running())
    prairie.version = NEWER
    prairie.config["upgradeStrategy"] = {
        "workerConcurrency": "2",
        "workerDrainOptions": {"enabled": True, "force": True, "timeout": 300},
    }
    prairie.apply()
    others = set(prairie.nodes()) - {occupied}

    def all_but_one() -> bool:
        nodes = prairie.nodes()
        return {name for name, node in nodes.items() if version_of(node) == NEWER and is_ready(node)} == others

    prairie.until(all_but_one, "all but the occupied Node have the new version")
    prairie.until(lambda: "default/busy" in prairie.why()[1], "the Pod that keeps it from going on is told")
    held = prairie.nodes()[occupied]
    assert (version_of(held), held["spec"].get("unschedulable")) == (VERSION, True)
    assert prairie.ask("GET", f"{PODS}/busy").code == 200

    assert prairie.ask("DELETE", f"{BUDGETS}/busy").code == 200
    prairie.until(lambda: {*map(version_of, prairie.nodes().values())} == {NEWER}, "the last Node has the new version")
    nodes = prairie.has_nodes(5)
    assert prairie.ask("GET", f"{PODS}/busy").code == 404
    assert not any(node["spec"].get("unschedulable") for node in nodes.values())
    assert (prairie.identities(), prairie.running()) == before


def test_pool_scaling_adds_and_removes_nodes_and_etcd_members(prairie: OnHosts) -> None:
    first = prairie.identities()
    prairie.pools[SERVERS]["quantity"], prairie.pools[WORKERS]["quantity"] = 4, 3
    prairie.apply()
    prairie.has_nodes(7)
    grown = prairie.identities()
    assert first.items() <= grown.items()
    prairie.until(lambda: len(prairie.voters()) == 4, "the new server is a member that votes")

    prairie.pools[SERVERS]["quantity"], prairie.pools[WORKERS]["quantity"] = 3, 2
    prairie.apply()
    prairie.has_nodes(5)
    assert prairie.identities().items() <= grown.items(), "whoever stayed is who it was"
    assert prairie.voters() == {prairie.node_of(name) for name in prairie.machines(SERVERS)}
    assert prairie.ask("GET", f"{CONFIG_MAPS}/kept").code == 200
    assert {host.name for host in (prairie.fleet.hosts / "nspawn").glob("prairie-*")} == {
        prairie.folder(name).name for name in prairie.machines()
    }


@pytest.mark.usefixtures("pampa")
def test_dead_hosts_are_replaced(prairie: OnHosts) -> None:
    before = prairie.identities()
    published = prairie.workload().url
    others = set(prairie.machines(SERVERS)) - {prairie.keeper()}
    server = max(others, key=lambda name: f"https://{prairie.address(name)}:6443" == published)  # the way in, if it may
    worker = min(prairie.machines(WORKERS))
    for each in (SERVERS, WORKERS):
        prairie.pools[each].update(SOON_UNHEALTHY)
    prairie.apply()
    prairie.kill(server)
    prairie.kill(worker)
    prairie.until(lambda: not {server, worker} & _wanted(prairie), "the dead Machines are deleted", HEALING_SECONDS)
    for each in (SERVERS, WORKERS):
        prairie.pools[each].update(HEALTH)
    prairie.apply()
    prairie.until(lambda: not {server, worker} & set(prairie.machines()), "the dead Machines are gone", HEALING_SECONDS)
    prairie.has_nodes(5)
    kept = {name: one for name, one in before.items() if name not in (server, worker)}
    assert kept.items() <= prairie.identities().items()
    assert prairie.voters() == {prairie.node_of(name) for name in prairie.machines(SERVERS)}
    assert prairie.ask("GET", f"{CONFIG_MAPS}/kept").code == 200


def test_all_role_hosts_on_dedicated_bridge_upgrade_behind_load_balancer(pampa: OnHosts) -> None:
    fleet = pampa.fleet
    nodes = pampa.has_nodes(3)
    assert pampa.voters() == set(nodes)
    endpoint = fleet.http("GET", f"{RKE_CLUSTERS}/pampa").body["spec"]["controlPlaneEndpoint"]
    assert pampa.workload().url == f"https://{endpoint['host']}:{endpoint['port']}"
    (about,) = (fleet.hosts / "nspawn/.clusters").glob("*/cluster.json")
    made = json.loads(about.read_text())
    subnet = ipaddress.IPv4Network(made["subnet"])
    addresses = {one["address"] for node in nodes.values() for one in node["status"]["addresses"]} - set(nodes)
    assert {endpoint["host"]} & addresses == set()
    assert all(ipaddress.IPv4Address(one) in subnet for one in {endpoint["host"], *addresses})
    assert len(interfaces(made["bridge"])) == 3

    pampa.version = NEWER
    pampa.changes_in_place(lambda node: version_of(node) == NEWER, "every Node has the new version")

    pampa.delete()
    pampa.until(lambda: not [one for one in fleet.everything() if "pampa" in one], "no object is left")
    assert [*(fleet.hosts / "nspawn").glob("pampa*"), *about.parents[1].iterdir()] == []
    assert processes_below(fleet.hosts / "nspawn/.clusters") == []
    assert made["bridge"] not in os.listdir("/sys/class/net")


def test_a_deleted_cluster_leaves_nothing(prairie: OnHosts, pampa: OnHosts, network: Network) -> None:
    pampa.delete()  # if its own test has not: nothing must be left of either
    prairie.delete()
    prairie.leaves_nothing()
    assert machines(prairie.fleet.hosts) == []
    assert interfaces(network.bridge) == set()


def _wanted(prairie: OnHosts) -> set[str]:
    """The Machines that nobody has deleted."""
    return {name for name, one in prairie.machines().items() if "deletionTimestamp" not in one["metadata"]}
