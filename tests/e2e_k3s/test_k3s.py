"""Real k3s on real hosts, by our plans alone: three servers with their own etcd and one agent, from one manifest.

One cluster lives through all of it, test after test: each finds it well and leaves it so. After every change etcd is
asked for its members on the hosts, with its own certificates, and not by what we have heard of them.

kubectl is that of a user who was granted the cluster: it comes through the proxy, and through the tunnel of one of the
servers. What the tests themselves want to know they ask directly.
"""

from __future__ import annotations

import asyncio
import json
import select
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.e2e_k3s import images
from tests.e2e_k3s.k3s_cluster import (
    NEWER,
    PATIENCE_SECONDS,
    SERVERS,
    VERSION,
    WORKERS,
    K3sCluster,
    require_packages,
    room_for_watches,
)
from tests.lab.cluster_on_hosts import fleet_on
from tests.lab.clusters import Fleet, pool
from tests.lab.drivers import processes_below
from tests.lab.hosts import Network, groups, interfaces, machines, mounts
from tests.lab.kubectl import Kubectl, granted
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.peers import require_peer
from tests.lab.ports import free_port
from tests.lab.tunnels import Tunnels

pytestmark = pytest.mark.timeout(7200)

Json = dict[str, Any]

PATIENT = {"unhealthyNodeTimeout": "15m", "nodeStartupTimeout": "30m"}  # with kubelets that restart, and start anew
IMPATIENT = {**PATIENT, "unhealthyNodeTimeout": "40s"}  # of a kubelet that others keep from the processors, too
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PORT = 8080
ANN = "ann"
_MADE = (201, 409)  # asked again because no answer came, it is there already


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    require_packages()
    found = Network(tmp_path_factory.mktemp("network"))
    asyncio.run(found.open())
    try:
        with room_for_watches():
            yield found
    finally:
        asyncio.run(found.close())


@pytest.fixture(scope="module")
def health() -> int:
    """The port where the manager tells how it is."""
    return free_port()


@pytest.fixture(scope="module")
def fleet(network: Network, health: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    older, newer, pod_program = require_peer("k3s", "k3s-next", "k3s-herd")
    with fleet_on(network, "--health-listen", f"127.0.0.1:{health}") as found:
        for version, binary in ((VERSION, older), (NEWER, newer)):
            _add(found, version, binary, pod_program, tmp_path_factory.mktemp("release"))
        yield found


def _add(fleet: Fleet, version: str, binary: Path, pod_program: Path, folder: Path) -> None:
    """As somebody does who has the files of a release."""
    (folder / "k3s").symlink_to(binary)
    archive = images.pack(pod_program, folder / "k3s-airgap-images-amd64.tar.zst")
    done = fleet.remuda("artefacts", "add", "k3s", version, str(folder / "k3s"), str(archive))
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def cluster(fleet: Fleet, health: int, network: Network) -> Iterator[K3sCluster]:
    found = K3sCluster(
        fleet,
        Tunnels(health),
        [pool(SERVERS, 3, "ec", **PATIENT), pool(WORKERS, 1, "w", **PATIENT)],
        {"bridge": network.bridge, "subnet": str(network.subnet)},
    )
    found.apply()
    try:
        yield found
    finally:
        found.delete(PATIENCE_SECONDS)
    assert interfaces(network.bridge) == set()


@pytest.fixture(scope="module")
def kubectl(cluster: K3sCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    cluster.has_tunnels()
    with granted(cluster, ANN, tmp_path_factory.mktemp(ANN)) as found:
        yield found


def test_one_manifest_becomes_three_servers_and_an_agent_of_real_k3s(cluster: K3sCluster) -> None:
    nodes = cluster.has_linked_nodes(4)
    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes.values()} == {VERSION}
    cluster.has_members()
    cluster.has_tunnels()
    cluster.is_well()
    assert cluster.ask("POST", CONFIG_MAPS, {"metadata": {"name": "kept"}}).code in _MADE


def test_pod_with_imported_image_runs_on_worker(cluster: K3sCluster, kubectl: Kubectl) -> None:
    container = {
        "name": "herd",
        "image": images.POD_IMAGE,
        "imagePullPolicy": "Never",
        "args": [f":{PORT}"],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 2},
    }
    wanted = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "herd"},
        "spec": {"containers": [container]},
    }
    (worker,) = cluster.machines(WORKERS)
    cluster.waits(lambda: kubectl.works("apply", "-f", "-", stdin=json.dumps(wanted)), "a Pod can be made")
    cluster.waits(lambda: kubectl.works("wait", "--for=condition=Ready", "pod/herd", "--timeout=60s"), "the Pod runs")
    pod = json.loads(kubectl("get", "pod", "herd", "-o", "json"))
    assert pod["spec"]["nodeName"] == cluster.node_of(worker)
    answer = cluster.run(worker, f"curl --silent --fail http://{pod['status']['podIP']}:{PORT}/")
    assert answer.strip() == cluster.node_of(worker)


def test_log_is_followed_through_the_tunnel(cluster: K3sCluster, kubectl: Kubectl) -> None:
    _reaches_the_pod(cluster, kubectl)
    assert kubectl("logs", "herd").splitlines()[0] == "the herd grazes"
    with kubectl.saying("logs", "-f", "--tail=0", "herd") as said:
        _until_it_says(kubectl, "hay", said)


@pytest.mark.parametrize(("protocol", "verb"), [("websocket", "get"), ("spdy", "create")])
def test_exec_attach_and_port_forward_reach_pod_through_tunnel(
    cluster: K3sCluster, kubectl: Kubectl, protocol: str, verb: str
) -> None:
    node = cluster.node_of(*cluster.machines(WORKERS))
    speaking, before = kubectl.by(protocol), len(cluster.audited(ANN))
    assert speaking("exec", "herd", "--", f"/{images.PROGRAM}", "where") == f"{node}\n"
    every_byte = bytes(range(256)) * 4096
    assert speaking.pipe(every_byte, "exec", "-i", "herd", "--", f"/{images.PROGRAM}", "repeat") == every_byte
    with speaking.forwarded("pod/herd", PORT) as url, urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as answer:
        assert answer.read().decode() == f"{node}\n"
    with speaking.saying("attach", "--quiet", "herd") as said:
        _until_it_says(speaking, "oats", said)

    def streams() -> set[tuple[str, str, int, str]]:
        ended = [(line["path"].rpartition("/")[2], line) for line in cluster.audited(ANN)[before:]]
        return {
            (what, line["verb"], line["code"], line["through"])
            for what, line in ended
            if what in ("exec", "attach", "portforward")
        }

    wanted = {(what, verb, 101, "tunnel") for what in ("exec", "attach", "portforward")}
    cluster.waits(lambda: streams() == wanted, f"exec, attach and port-forward by {protocol} are noted, and no others")


def test_version_and_kubelet_config_change_in_place(cluster: K3sCluster) -> None:
    """Both in one edit: each server restarts once."""
    before = (cluster.identities(), cluster.running(), _containers(cluster))
    cluster.config["machineGlobalConfig"]["kubelet-arg"].append("max-pods=42")
    cluster.version = NEWER
    cluster.apply()

    def shown() -> set[tuple[str, str]]:
        status = [node["status"] for node in cluster.nodes().values()]
        return {(one["nodeInfo"]["kubeletVersion"], one["capacity"]["pods"]) for one in status}

    cluster.waits(lambda: shown() == {(NEWER, "42")}, "every kubelet is of the new version and has room for 42 pods")
    cluster.has_linked_nodes(4)
    assert (cluster.identities(), cluster.running(), _containers(cluster)) == before
    cluster.has_members()


def test_dead_server_is_replaced_and_other_tunnels_take_over(cluster: K3sCluster, kubectl: Kubectl) -> None:
    before, containers = cluster.identities(), _containers(cluster)
    cluster.pools[SERVERS].update(IMPATIENT)
    cluster.apply()
    cluster.has_tunnels()
    dead = cluster.carrier(kubectl)
    cluster.kill(dead)
    _reaches_the_pod(cluster, kubectl)
    assert cluster.carrier(kubectl) in {*before} - {dead}
    cluster.waits(lambda: dead not in _wanted(cluster), "the Machine of the dead host is deleted")
    cluster.pools[SERVERS].update(PATIENT)
    cluster.apply()
    cluster.waits(lambda: dead not in cluster.machines(), "it is gone")
    cluster.has_linked_nodes(4)
    kept = {name: one for name, one in before.items() if name != dead}
    assert kept.items() <= cluster.identities().items()
    cluster.has_members()
    cluster.has_tunnels()
    assert _containers(cluster) == containers
    assert cluster.ask("GET", f"{CONFIG_MAPS}/kept").code == 200


def test_scaled_down_server_leaves_etcd_and_closes_its_tunnel(cluster: K3sCluster, kubectl: Kubectl) -> None:
    before = cluster.identities()
    cluster.pools[SERVERS]["quantity"] = 2
    cluster.apply()
    cluster.has_linked_nodes(3)
    assert cluster.identities().items() <= before.items()
    cluster.has_members()
    cluster.has_tunnels()
    _reaches_the_pod(cluster, kubectl)
    assert {line["through"] for line in cluster.audited(ANN) if line["code"] < 400} == {"tunnel"}
    assert cluster.ask("GET", f"{CONFIG_MAPS}/kept").code == 200


def test_deleted_cluster_leaves_nothing(cluster: K3sCluster, network: Network) -> None:
    folders = [cluster.folder(name) for name in cluster.machines()]
    cluster.delete(PATIENCE_SECONDS)
    assert [folder for folder in folders if folder.exists()] == []
    assert machines(cluster.fleet.hosts) == []
    assert mounts(cluster.fleet.hosts) == []
    assert groups(*folders) == []
    assert processes_below(cluster.fleet.hosts / "nspawn") == []
    assert interfaces(network.bridge) == set()


def _reaches_the_pod(cluster: K3sCluster, kubectl: Kubectl) -> None:
    """As soon as the agent of its host, too, has found a server that has just come, or is not there any more."""
    cluster.waits(lambda: kubectl.works("exec", "herd", "--", f"/{images.PROGRAM}", "where"), "kubectl reaches the Pod")


def _until_it_says(kubectl: Kubectl, word: str, printed: IO[str]) -> None:
    """The Pod is told to say it until that is printed: when somebody begins to listen nobody is told."""
    with kubectl.forwarded("pod/herd", PORT) as url:
        for _ in range(150):
            urllib.request.urlopen(f"{url}say/{word}", timeout=LIMIT_SECONDS).close()
            if select.select([printed], [], [], 2)[0]:
                break
    assert printed.readline() == f"{word}\n"


def _containers(cluster: K3sCluster) -> list[tuple[str, int]]:
    """What runs in the Pod, and how often it was started: containers outlive the service that has started them."""
    found = cluster.ask("GET", f"{PODS}/herd").body["status"]["containerStatuses"]
    return [(one["containerID"], one["restartCount"]) for one in found]


def _wanted(cluster: K3sCluster) -> set[str]:
    """The Machines that nobody has deleted."""
    return {name for name, one in cluster.machines().items() if "deletionTimestamp" not in one["metadata"]}
