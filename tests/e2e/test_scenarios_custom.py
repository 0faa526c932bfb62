"""Named scenarios of clusters whose hosts register themselves, and are folders of this machine: docs/scenarios.md lists
them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.scenarios import labels, roles
from tests.lab.clusters import FLEET_SECRETS, DeclaredCluster, Fleet
from tests.lab.custom_hosts import CustomHost
from tests.lab.process_machines import processes_below


@contextmanager
def registered(fleet: Fleet, folder: Path, name: str, hosts: dict[str, str]) -> Iterator[DeclaredCluster]:
    """A cluster without pools, of hosts (name → options of the line) that somebody has."""
    cluster = DeclaredCluster(fleet, name, [])
    cluster.apply()
    secret = fleet.until(FLEET_SECRETS, f"{name}-registration", lambda obj: "command" in (obj.get("data") or {}))
    line = base64.b64decode(secret["data"]["command"]).decode()
    made: list[CustomHost] = []
    try:
        for host, options in hosts.items():
            made.append(CustomHost(folder / host))
            done = made[-1].run(f"{line} --node-name {host} {options}")
            assert done.returncode == 0, done
        assert set(cluster.has_nodes(len(hosts))) == set(hosts)
        yield cluster
    finally:
        cluster.delete()
        for each in made:
            each.uninstall()
    cluster.leaves_nothing()
    cluster.until(lambda: not processes_below(folder), "the hosts run nothing any more")


def test_custom_single_node_has_all_roles_and_label(fleet: Fleet, tmp_path: Path) -> None:
    with registered(fleet, tmp_path, "pet", {"lamb": "--all-roles --label color=bay"}) as cluster:
        node = cluster.nodes()["lamb"]
        assert roles(node) == "ec"
        assert labels(node)["color"] == "bay"


def test_custom_three_nodes_have_all_roles(fleet: Fleet, tmp_path: Path) -> None:
    hosts = dict.fromkeys(("ewe", "ram", "wether"), "--all-roles")
    with registered(fleet, tmp_path, "pets", hosts) as cluster:
        assert [roles(node) for node in cluster.nodes().values()] == ["ec"] * 3


def test_custom_nodes_with_unique_roles_get_those_roles(fleet: Fleet, tmp_path: Path) -> None:
    hosts = {"ewe": "--etcd", "ram": "--controlplane", "wether": "--worker"}
    with registered(fleet, tmp_path, "flock", hosts) as cluster:
        assert {name: roles(node) for name, node in cluster.nodes().items()} == {"ewe": "e", "ram": "c", "wether": ""}
