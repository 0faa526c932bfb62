"""A cluster nobody can connect to: from before the first of its hosts is made until the last is gone, nothing that
begins at the manager's machine reaches them. It is made, managed and used all the same, through the tunnel that its
server opens.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.providers.machine.drivers.nspawn import groups
from remuda.providers.machine.drivers.nspawn.folder import Folder
from tests.e2e.program import run
from tests.lab.children import die_with_parent
from tests.lab.clusters import FLEET_SECRETS, NEWER, VERSION, Fleet, pool
from tests.lab.hosts import Network, interfaces, require_hosts
from tests.lab.kubectl import Kubectl
from tests.lab.on_hosts import OnHosts, fleet_on
from tests.lab.peers import require_peer
from tests.lab.server import Server, end
from tests.lab.up import Json, eventually
from tests.lab.walls import Wall

SERVERS, WORKERS = "servers", "workers"
CUT_SECONDS = 60.0
PATIENCE_SECONDS = 240.0
NOT_CONNECTED = "is not connected since "


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    require_hosts()
    found = Network(tmp_path_factory.mktemp("network"))
    asyncio.run(found.open())
    try:
        with Wall(found.bridge).closed():
            yield found
    finally:
        asyncio.run(found.close())


@pytest.fixture(scope="module")
def fleet(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_on(network) as found:
        found.add_nano(tmp_path_factory.mktemp("bundles"), VERSION, NEWER)
        yield found


class Closed(OnHosts):
    def workload(self) -> Server:
        """By the only way there is: the cluster's kubeconfig, through the proxy."""
        path = self.fleet.folder / f"{self.name}.kubeconfig"
        path.write_bytes(self._kubeconfig(f"{self.name}-kubeconfig"))
        return Server(path)

    def _kubeconfig(self, secret: str) -> bytes:
        found = self.fleet.http("GET", f"{FLEET_SECRETS}/{secret}")
        if found.code != 200:
            raise ConnectionError(f"{self.name} has no kubeconfig yet")
        return base64.b64decode(found.body["data"]["value"])

    def inside(self, program: Path, folder: Path) -> Kubectl:
        """kubectl within the walls: in the network of the server, at its own API."""
        (server,) = self.machines(SERVERS)
        here = os.readlink("/proc/self/ns/net")
        pids = groups.processes(Folder(self.folder(server)).machine, groups.hierarchies())
        pid = next(pid for pid in pids if os.readlink(f"/proc/{pid}/ns/net") != here)
        config = folder / "inside.kubeconfig"
        config.write_bytes(self._kubeconfig(f"{self.name}-kubeconfig-admin"))
        entered = ["nsenter", "--target", str(pid), "--net", str(program), "--server", "https://127.0.0.1:6443"]
        return Kubectl(entered, config, folder)


@pytest.fixture(scope="module")
def cluster(fleet: Fleet, network: Network) -> Iterator[Closed]:
    found = Closed(
        fleet,
        "closed",
        [pool(SERVERS, 1, "ec"), pool(WORKERS, 1, "w")],
        {"bootstrap": "cloud-init", "bridge": network.bridge, "subnet": str(network.subnet)},
    )
    found.apply()
    try:
        yield found
    finally:
        found.delete()
    assert interfaces(network.bridge) == set()


@pytest.fixture
def kubectl(cluster: Closed, tmp_path: Path) -> Iterator[Kubectl]:
    """As somebody who was granted the cluster has it."""
    (program,) = require_peer("kubectl")
    name = f"ann-{tmp_path.name.replace('_', '-')[:20].strip('-')}"
    access = ("--kubeconfig", cluster.fleet.kubeconfig)
    for words in (("user", "create", name), ("grant", name, cluster.name, "cluster-owner")):
        done = run(*words, *access)
        assert done.code == 0, done
    got = run("get", "kubeconfig", cluster.name, "--user", name, "--embed-token", *access)
    assert got.code == 0, got
    path = tmp_path / "ann.kubeconfig"
    path.write_text(got.out)
    yield Kubectl([str(program)], path, tmp_path)
    assert run("user", "delete", name, *access).code == 0


def test_hosts_that_let_nobody_in_become_a_cluster(cluster: Closed) -> None:
    cluster.has_nodes(2)
    cluster.is_well()
    for machine in cluster.machines():
        for port in (22, 6443):
            with pytest.raises(TimeoutError):
                socket.create_connection((cluster.address(machine), port), timeout=3).close()


def test_kubectl_reads_and_writes_there(cluster: Closed, kubectl: Kubectl) -> None:
    cluster.until(lambda: _works(kubectl, "get", "nodes"), "the grant has reached the cluster")
    assert len(kubectl("get", "nodes", "-o", "name").splitlines()) == 2
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"herd": "wild"}}
    kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(wanted))
    assert kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.herd}") == "wild"


def test_it_is_managed_in_place(cluster: Closed) -> None:
    cluster.version = NEWER
    cluster.changes_in_place(
        lambda node: node["status"]["nodeInfo"]["kubeletVersion"] == NEWER, "every node has the new version"
    )


def test_a_manager_that_was_started_anew_reaches_it_again(cluster: Closed, fleet: Fleet, kubectl: Kubectl) -> None:
    cluster.until(lambda: _works(kubectl, "get", "nodes"), "it is reached")
    end(fleet.process)
    assert fleet.process.stdout is not None
    fleet.process.stdout.close()
    fleet.start_again()
    cluster.until(lambda: _works(kubectl, "get", "nodes"), "it is reached again")
    cluster.has_nodes(2)
    cluster.is_well()


def test_a_link_that_was_cut_for_a_minute_comes_back_and_nothing_is_missed(
    cluster: Closed, network: Network, kubectl: Kubectl, tmp_path: Path
) -> None:
    cluster.until(lambda: _works(kubectl, "get", "nodes"), "it is reached")
    program, clients = require_peer("kubectl", "clients")
    inside = cluster.inside(program, tmp_path)
    follower = _Follower([str(clients), "--kubeconfig", str(kubectl.kubeconfig), "--group", "cut.example.com"])
    try:
        namespace = follower.namespace
        inside("-n", namespace, "create", "configmap", "going")
        watching = kubectl.start("get", "configmaps", "-n", namespace, "-w")
        follower.until_holds(inside, namespace)
        with Wall(network.bridge).cut():
            since = time.monotonic()
            inside("-n", namespace, "create", "configmap", "new")
            inside("-n", namespace, "delete", "configmap", "going")
            said, _ = watching.communicate(timeout=PATIENCE_SECONDS)
            time.sleep(max(0.0, since + CUT_SECONDS - time.monotonic()))
        assert NOT_CONNECTED in said, said
        report = follower.until_holds(inside, namespace)
        told = report["typed configmaps"]["then"]
        assert [one for one in told if one.startswith("add ")] == ["add going", "add new"], told
        assert sum(one.startswith("delete") for one in told) == 1, told
    finally:
        follower.end()
    cluster.has_nodes(2)
    cluster.is_well()


def _works(kubectl: Kubectl, *words: str) -> bool:
    try:
        kubectl(*words)
    except AssertionError:
        return False
    return True


class _Follower:
    """client-go's informers, through the proxy, for as long as they are wanted."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            [*command, "--seconds", "900", "follow"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        self.namespace = str(self._line()["namespace"])

    def until_holds(self, inside: Kubectl, namespace: str) -> Json:
        """What it tells once it knows what there is."""
        reports: list[Json] = [{}]

        def holds() -> bool:
            items = json.loads(inside("-n", namespace, "get", "configmaps", "-o", "json"))["items"]
            there = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}
            assert self._process.stdin is not None
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
            reports.append(self._line())
            return all(reports[-1][sort]["holds"] == there for sort in ("typed configmaps", "dynamic configmaps"))

        eventually(holds, lambda: f"it does not know all there is: {reports[-1]}", PATIENCE_SECONDS)
        return reports[-1]

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "it has ended"
        return dict(json.loads(line))
