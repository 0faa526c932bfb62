"""A cluster nobody can connect to: from before the first of its hosts is made until the last is gone, nothing that
begins at the manager's machine reaches them. It is made, managed and used all the same, through the tunnel that its
server opens.
"""

from __future__ import annotations

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

from remuda.capi.machine.deletion import MachineDeletionStage
from remuda.capi.names import PRE_TERMINATE_HOOK
from remuda.providers.shared.drivers.nspawn import groups
from remuda.providers.shared.drivers.nspawn.folder import Folder
from tests.lab.children import die_with_parent
from tests.lab.cluster_on_hosts import ClusterOnHosts, fleet_on
from tests.lab.clusters import FLEET_SECRETS, MACHINES, NEWER, PROVISIONING, VERSION, Fleet, MachineIdentity, pool
from tests.lab.firewall import Firewall, require_firewall
from tests.lab.hosts import Network, interfaces, open_network
from tests.lab.kubectl import Kubectl, granted
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.peers import require_peer
from tests.lab.server import Server, end
from tests.lab.up import Json, eventually

SERVERS, WORKERS = "servers", "workers"
CUT_SECONDS = 60.0
PATIENCE_SECONDS = 2 * LIMIT_SECONDS
NOT_CONNECTED = "has not been connected since "
HOLD = f"{PRE_TERMINATE_HOOK}/somebody"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    require_firewall()
    with open_network(tmp_path_factory.mktemp("network")) as found, Firewall(found.bridge).closed():
        yield found


@pytest.fixture(scope="module")
def fleet(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_on(network) as found:
        found.add_nano(tmp_path_factory.mktemp("bundles"), VERSION, NEWER)
        yield found


class ClosedCluster(ClusterOnHosts):
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
        """kubectl behind the firewall: in the network of the server, at its own API."""
        (server,) = self.machines(SERVERS)
        here = os.readlink("/proc/self/ns/net")
        pids = groups.processes(Folder(self.folder(server)).machine, groups.hierarchies())
        pid = next(pid for pid in pids if os.readlink(f"/proc/{pid}/ns/net") != here)
        config = folder / "inside.kubeconfig"
        config.write_bytes(self._kubeconfig(f"{self.name}-kubeconfig-admin"))
        entered = ["nsenter", "--target", str(pid), "--net", str(program), "--server", "https://127.0.0.1:6443"]
        return Kubectl(entered, config, folder)

    def plans(self) -> dict[str, str]:
        """What each host was told to do."""
        secrets = self.fleet.items(FLEET_SECRETS)
        return {one["metadata"]["name"]: one["data"]["plan"] for one in secrets if "plan" in (one.get("data") or {})}

    def untouched(self) -> tuple[dict[str, MachineIdentity], dict[str, str], dict[str, str]]:
        """The same before and after: no Machine or host was made anew, rebooted, or told to do anything."""
        return self.identities(), self.running(), self.plans()


@pytest.fixture(scope="module")
def cluster(fleet: Fleet, network: Network) -> Iterator[ClosedCluster]:
    found = ClosedCluster(
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
    found.leaves_nothing()
    assert interfaces(network.bridge) == set()


@pytest.fixture
def kubectl(cluster: ClosedCluster, tmp_path: Path) -> Iterator[Kubectl]:
    """As somebody who was granted the cluster has it; it works."""
    with granted(cluster, f"ann-{os.urandom(3).hex()}", tmp_path) as found:
        yield found


def test_hosts_with_blocked_inbound_ports_form_a_healthy_cluster(cluster: ClosedCluster) -> None:
    cluster.has_nodes(2)
    cluster.is_well()
    for machine in cluster.machines():
        for port in (22, 6443):
            with pytest.raises(TimeoutError):
                socket.create_connection((cluster.address(machine), port), timeout=2).close()


def test_kubectl_reads_and_writes_through_tunnel(cluster: ClosedCluster, kubectl: Kubectl) -> None:
    assert len(kubectl("get", "nodes", "-o", "name").splitlines()) == 2
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"herd": "wild"}}
    kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(wanted))
    assert kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.herd}") == "wild"


def test_version_upgrade_through_tunnel_happens_in_place(cluster: ClosedCluster) -> None:
    cluster.version = NEWER
    cluster.changes_in_place(
        lambda node: node["status"]["nodeInfo"]["kubeletVersion"] == NEWER, "every node has the new version"
    )


def test_restarted_manager_reconnects_to_cluster(cluster: ClosedCluster, fleet: Fleet, kubectl: Kubectl) -> None:
    before = cluster.untouched()
    _start_anew(fleet)
    cluster.until(lambda: kubectl.works("get", "nodes"), "it is reached again")
    cluster.has_nodes(2)
    cluster.is_well()
    assert cluster.untouched() == before


def test_tunnel_reconnects_after_one_minute_cut_without_missed_watch_events(
    cluster: ClosedCluster, network: Network, kubectl: Kubectl, tmp_path: Path
) -> None:
    program, clients = require_peer("kubectl", "clients")
    inside = cluster.inside(program, tmp_path)
    before = cluster.untouched()
    follower = _Follower([str(clients), "--kubeconfig", str(kubectl.kubeconfig), "--group", "cut.example.com"])
    space = ("-n", follower.namespace)
    watch = ("get", "configmaps", "-w", "--request-timeout", f"{PATIENCE_SECONDS:.0f}s")
    try:
        inside(*space, "create", "configmap", "going")
        with kubectl.saying(*space, *watch) as printed:
            printed.readline()  # the columns: it has begun
            inside(*space, "create", "configmap", "seen")
            while not (line := printed.readline()).startswith("seen "):
                assert line, "it has ended"
            follower.until_holds(inside)
            with Firewall(network.bridge).cut():
                until = time.monotonic() + CUT_SECONDS
                inside(*space, "create", "configmap", "new")
                inside(*space, "delete", "configmap", "going")
                told = [printed.read()]
                cluster.until(lambda: NOT_CONNECTED in cluster.why()[1], "remuda why says what is missing")
                told.append(cluster.why()[1])
                with pytest.raises(AssertionError, match=NOT_CONNECTED):
                    kubectl("get", "nodes")
                time.sleep(max(0.0, until - time.monotonic()))
        heard = follower.until_holds(inside)["typed configmaps"]["then"]
    finally:
        follower.end()
    (server,) = cluster.machines(SERVERS)
    for text in told:
        assert f"(tunnel of {server})" in text, text
        assert "its servers reconnect automatically" in text, text
    assert [one for one in heard if one.startswith("add ")] == ["add going", "add seen", "add new"], heard
    assert sum(one.startswith("delete") for one in heard) == 1, heard
    cluster.has_nodes(2)
    cluster.is_well()
    assert cluster.untouched() == before


def test_cluster_deletion_completes_after_manager_restart(
    cluster: ClosedCluster, fleet: Fleet, kubectl: Kubectl
) -> None:
    """Held up where its server still runs and is about to go: there the end of a server may need the API once more."""
    (server,) = cluster.machines(SERVERS)
    cluster.fleet.patch(f"{MACHINES}/{server}", {"metadata": {"annotations": {HOLD: ""}}})
    try:
        assert cluster.fleet.http("DELETE", f"{PROVISIONING}/{cluster.name}").code in (200, 202)
        cluster.until(lambda: _waits_for_hooks(cluster.machines(SERVERS)[server]), "its server waits for its last hook")
        _start_anew(fleet)
        cluster.until(lambda: kubectl.works("get", "nodes"), "it is reached again")
    finally:
        cluster.fleet.patch(f"{MACHINES}/{server}", {"metadata": {"annotations": {HOLD: None}}})
    cluster.delete()


def _waits_for_hooks(machine: Json) -> bool:
    return any(one["reason"] == MachineDeletionStage.PRE_TERMINATE_HOOK for one in machine["status"]["conditions"])


def _start_anew(fleet: Fleet) -> None:
    end(fleet.process)
    assert fleet.process.stdout is not None
    fleet.process.stdout.close()
    fleet.start_again()


class _Follower:
    """client-go's informers, through the proxy, for as long as they are wanted."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            [*command, "--seconds", "3600", "follow"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        self.namespace = str(self._line()["namespace"])

    def until_holds(self, inside: Kubectl) -> Json:
        """What it tells once it knows what there is."""
        reports: list[Json] = [{}]

        def holds() -> bool:
            items = json.loads(inside("-n", self.namespace, "get", "configmaps", "-o", "json"))["items"]
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
