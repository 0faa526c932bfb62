"""Named scenarios of declared clusters, on hosts that are processes: docs/scenarios.md lists them.

One `remuda up` serves all of them. Where scenarios can share a cluster they do: each begins with the cluster as it was
declared at first, and leaves it so.
"""

from __future__ import annotations

import base64
import itertools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.cluster_life import live
from tests.lab.clusters import FLEET_SECRETS, MACHINES, NEWER, SETS, VERSION, Declared, Fleet, is_ready, pool
from tests.lab.custom_hosts import CustomHost
from tests.lab.prairie import processes_below
from tests.lab.up import Json

TAINT = {"key": "herd", "value": "wild", "effect": "NoSchedule"}
OTHER = {"key": "herd", "value": "tame", "effect": "PreferNoSchedule"}
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
DELETE_ME = "cluster.x-k8s.io/delete-machine"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet()
    try:
        fleet.add_nano(tmp_path_factory.mktemp("bundles"), VERSION, NEWER)
        yield fleet
    finally:
        fleet.stop()


@contextmanager
def declared(cluster: Declared, nodes: int) -> Iterator[Declared]:
    """Comes up; at the end it is deleted, and nothing is left of it."""
    try:
        cluster.apply()
        cluster.has_nodes(nodes)
        yield cluster
    finally:
        cluster.delete()
    cluster.leaves_nothing()


def roles(node: Json) -> str:
    found = {"etcd": "e", "control-plane": "c"}
    return "".join(letter for role, letter in found.items() if f"node-role.kubernetes.io/{role}" in _labels(node))


def _labels(node: Json) -> dict[str, str]:
    return dict(node["metadata"]["labels"])


def test_a_whole_life_with_three_servers_and_two_workers(fleet: Fleet) -> None:
    live(fleet, "prairie", servers=3, workers=2)


# ---- shapes --------------------------------------------------------------------------------------------------------


def test_single_node_all_roles_with_delete(fleet: Fleet) -> None:
    with declared(Declared(fleet, "single", [pool("all", 1, "ecw")]), 1) as single:
        (node,) = single.nodes().values()
        assert roles(node) == "ec"
        assert node["spec"].get("taints", []) == []
        single.is_well()


def test_three_nodes(fleet: Fleet) -> None:
    with declared(Declared(fleet, "three", [pool("all", 3, "ecw")]), 3) as three:
        assert sorted(map(roles, three.nodes().values())) == ["ec", "ec", "ec"]


@pytest.fixture(scope="module")
def apart(fleet: Fleet) -> Iterator[Declared]:
    """Each role on nodes of its own."""
    cluster = Declared(fleet, "apart", [pool("etcd", 3, "e"), pool("plane", 1, "c"), pool("work", 1, "w")])
    with declared(cluster, 5):
        yield cluster


def test_unique_roles_on_five_nodes(apart: Declared) -> None:
    nodes = apart.nodes()
    for name, expected in (("etcd", "e"), ("plane", "c"), ("work", "")):
        assert {roles(nodes[apart.node_of(machine)]) for machine in apart.machines(name)} == {expected}
    servers = [node for node in nodes.values() if roles(node)]
    assert all(node["spec"].get("taints") for node in servers), "servers without the worker's role take no Pods"


def test_etcd_pool_scaled_down_then_delete(apart: Declared) -> None:
    before = apart.standing()
    apart.pools["etcd"]["quantity"] = 1
    apart.apply()
    nodes = apart.has_nodes(3)
    assert [roles(node) for node in nodes.values()].count("e") == 1
    assert apart.standing().items() <= before.items(), "those that stay are those that were there"
    # What is left still takes writes, so its one member is a majority.
    made = {"metadata": {"name": "after"}, "data": {"grass": "green"}}
    assert apart.ask("POST", "/api/v1/namespaces/default/configmaps", made).code == 201


@pytest.fixture(scope="module")
def ranch(fleet: Fleet) -> Iterator[Declared]:
    """A server, and workers that are emptied before anything is done to them."""
    drain = {"enabled": True, "force": True, "timeout": 600}
    cluster = Declared(
        fleet,
        "ranch",
        [pool("server", 1, "ec"), pool("worker", 3, "w", drainBeforeDelete=True)],
        upgradeStrategy={"workerConcurrency": "1", "workerDrainOptions": drain},
    )
    with declared(cluster, 4):
        yield cluster


def test_four_nodes_server_and_worker(ranch: Declared) -> None:
    assert sorted(map(roles, ranch.nodes().values())) == ["", "", "", "ec"]


# ---- what nodes bear -----------------------------------------------------------------------------------------------


def test_taints(ranch: Declared) -> None:
    before = ranch.standing()

    def borne() -> list[list[Json]]:
        nodes = ranch.nodes()
        found = [nodes.get(ranch.node_of(machine)) or {} for machine in ranch.machines("worker")]
        return [[one for one in node.get("spec", {}).get("taints") or [] if one["key"] == "herd"] for node in found]

    for taints in ([TAINT], [OTHER], []):
        ranch.pools["worker"]["taints"] = taints
        ranch.apply()
        ranch.until(lambda wanted=taints: borne() == [wanted] * 3, f"workers bear {taints}")  # type: ignore[misc]
    del ranch.pools["worker"]["taints"]
    ranch.apply()
    ranch.has_nodes(4)
    assert ranch.standing() == before


def test_data_directories(fleet: Fleet) -> None:
    places = {"systemAgent": "/opt/agent", "provisioning": "/opt/capr", "k8sDistro": "/opt/nano"}
    with declared(Declared(fleet, "moved", [pool("all", 1, "ecw")], dataDirectories=places), 1):
        (root,) = fleet.hosts.glob("process/moved-*/root")
        assert {one.name for one in (root / "opt").iterdir()} == {"agent", "capr", "nano"}
        assert (root / "opt/nano/server/db").exists()
        usual = root / "var/lib/rancher"
        assert not usual.exists() or [one.name for one in usual.rglob("*") if one.is_file()] == []


# ---- pools ---------------------------------------------------------------------------------------------------------


def test_machine_set_template_annotations(ranch: Declared) -> None:
    """What a pool says of nodes is in the templates of its MachineSets, and reaches the Machines that are there."""
    before = ranch.standing()
    ranch.pools["worker"] |= {"labels": {"tier": "web"}, "machineDeploymentAnnotations": {"owner": "ben"}}
    ranch.apply()

    def noted(meta: Json) -> bool:
        return '"tier":"web"' in str((meta.get("annotations") or {}).get("rke.cattle.io/labels")).replace(" ", "")

    def templates() -> list[Json]:
        sets = [one for one in ranch.fleet.items(SETS) if one["metadata"]["name"].startswith("ranch-worker-")]
        return [one["spec"]["template"]["metadata"] for one in sets if one["spec"].get("replicas")]

    ranch.until(lambda: list(map(noted, templates())) == [True], "the MachineSet's template says so")
    ranch.until(lambda: all(noted(one["metadata"]) for one in ranch.machines("worker").values()), "the Machines say so")
    ranch.until(
        lambda: sum(_labels(node).get("tier") == "web" for node in ranch.nodes().values()) == 3, "the Nodes say so"
    )
    assert ranch.standing() == before
    for field in ("labels", "machineDeploymentAnnotations"):
        del ranch.pools["worker"][field]
    ranch.apply()
    ranch.until(lambda: not any("tier" in _labels(node) for node in ranch.nodes().values()), "the label is gone")
    ranch.has_nodes(4)


def test_machine_set_delete_policies(ranch: Declared) -> None:
    """The one somebody has marked goes first, else the oldest."""
    by_age = _by_age(ranch)
    marked, oldest = by_age[-1], by_age[0]
    ranch.fleet.patch(f"{MACHINES}/{marked}", {"metadata": {"annotations": {DELETE_ME: "true"}}})
    _scale_workers(ranch, 2)
    assert set(ranch.machines("worker")) == set(by_age) - {marked}
    _scale_workers(ranch, 3)
    _scale_workers(ranch, 2)
    gone = set(by_age) - set(ranch.machines("worker"))
    assert gone in ({marked, oldest}, {marked, by_age[1]}), "those two are of the same second, perhaps"
    _scale_workers(ranch, 3)


def _by_age(cluster: Declared) -> list[str]:
    machines = cluster.machines("worker").items()
    return [
        name for name, one in sorted(machines, key=lambda pair: (pair[1]["metadata"]["creationTimestamp"], pair[0]))
    ]


def _scale_workers(cluster: Declared, number: int) -> None:
    cluster.pools["worker"]["quantity"] = number
    cluster.apply()
    cluster.has_nodes(number + 1)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"autoscalingMinSize": 1}, "both, or neither"),
        ({"autoscalingMaxSize": 1}, "both, or neither"),
        ({"autoscalingMinSize": 3, "autoscalingMaxSize": 2}, "must be from 0 to autoscalingMaxSize, which is 2"),
        ({"autoscalingMinSize": -1, "autoscalingMaxSize": 2}, "autoscalingMinSize"),
        ({"autoscalingMinSize": 1, "autoscalingMaxSize": 0}, "autoscalingM"),
        ({"autoscalingMinSize": 0, "autoscalingMaxSize": 2}, "more than 0 for etcd and control plane"),
    ],
)
def test_autoscaling_field_validation(fleet: Fleet, sizes: dict[str, int], words: str) -> None:
    refused = fleet.put(Declared(fleet, "sized", [pool("all", 1, "ecw", **sizes)]).manifest())
    assert refused.code in (400, 403, 422), refused
    assert words in refused.body["message"]


# ---- drains --------------------------------------------------------------------------------------------------------


@contextmanager
def guarded_pod(cluster: Declared, node: str) -> Iterator[None]:
    """A Pod there that may not be evicted; at the end it may."""
    pod: Json = {
        "metadata": {"name": "mare", "labels": {"app": "mare"}},
        "spec": {"nodeName": node, "containers": [{"name": "mare", "image": "mare"}]},
    }
    budget: Json = {
        "metadata": {"name": "mare"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "mare"}}},
    }
    for path, obj in ((PODS, pod), (BUDGETS, budget)):
        reply = cluster.ask("POST", path, obj)
        assert reply.code == 201, reply
    yield
    assert cluster.ask("GET", f"{PODS}/mare").code == 200, "it is still there while its budget says so"
    assert cluster.ask("DELETE", f"{BUDGETS}/mare").code == 200
    cluster.until(lambda: cluster.ask("GET", f"{PODS}/mare").code == 404, "the Pod is evicted")


def test_drain(ranch: Declared) -> None:
    """A machine that is deleted goes when its Pods are gone, not before."""
    victim = _by_age(ranch)[0]
    node = ranch.node_of(victim)
    ranch.fleet.patch(f"{MACHINES}/{victim}", {"metadata": {"annotations": {DELETE_ME: "true"}}})
    with guarded_pod(ranch, node):
        ranch.pools["worker"]["quantity"] = 2
        ranch.apply()
        ranch.until(lambda: _cordoned(ranch, node), "the Node is cordoned")
        ranch.until(lambda: "mare" in str(ranch.machines()[victim]["status"]), "the Machine names the Pod")
        assert is_ready(ranch.nodes()[node]), "its host runs"
    ranch.has_nodes(3)
    assert victim not in ranch.machines()
    _scale_workers(ranch, 3)


def test_drain_with_no_delete(ranch: Declared) -> None:
    """A node is emptied before its services restart, comes back, and is the same machine."""
    before = ranch.standing()
    node = ranch.node_of(_by_age(ranch)[0])
    started = _running_since(ranch, node)
    with guarded_pod(ranch, node):
        ranch.config["machineGlobalConfig"] = {"debug": True}
        ranch.apply()
        ranch.until(lambda: _cordoned(ranch, node), "the Node is cordoned")
        ranch.until(lambda: "mare" in ranch.why()[1], "it is told which Pod is waited for")
        assert _running_since(ranch, node) == started, "it has not been restarted"
    ranch.has_nodes(4)
    nodes = ranch.nodes()
    assert not any(one["spec"].get("unschedulable") for one in nodes.values())
    assert _running_since(ranch, node) != started
    assert ranch.standing() == before


def _cordoned(cluster: Declared, node: str) -> bool:
    """Not while its API cannot be asked, which happens when the only server restarts."""
    return bool((cluster.nodes().get(node) or {"spec": {}})["spec"].get("unschedulable"))


def _running_since(cluster: Declared, node: str) -> str:
    """The process of the node's unit."""
    (root,) = cluster.fleet.hosts.glob(f"process/{node}/root")
    ask = [str(root / "usr/local/bin/systemctl"), "show", "-p", "MainPID", "--value", "nano-agent"]
    return subprocess.run(ask, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


# ---- hosts that register themselves --------------------------------------------------------------------------------

_addresses = (f"127.98.{number // 250}.{number % 250 + 1}" for number in itertools.count())


@contextmanager
def registered(fleet: Fleet, folder: Path, name: str, hosts: dict[str, str]) -> Iterator[Declared]:
    """A cluster without pools, of hosts (name → options of the line) that somebody has."""
    cluster = Declared(fleet, name, [])
    cluster.apply()
    secret = fleet.until(FLEET_SECRETS, f"{name}-registration", lambda obj: "command" in (obj.get("data") or {}))
    line = base64.b64decode(secret["data"]["command"]).decode()
    made: list[CustomHost] = []
    try:
        for host, options in hosts.items():
            made.append(CustomHost(folder / host, next(_addresses)))
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


def test_custom_one_node(fleet: Fleet, tmp_path: Path) -> None:
    with registered(fleet, tmp_path, "pet", {"lamb": "--all-roles --label color=bay"}) as pet:
        node = pet.nodes()["lamb"]
        assert roles(node) == "ec"
        assert _labels(node)["color"] == "bay"


def test_custom_three_nodes(fleet: Fleet, tmp_path: Path) -> None:
    hosts = dict.fromkeys(("ewe", "ram", "wether"), "--all-roles")
    with registered(fleet, tmp_path, "pets", hosts) as pets:
        assert [roles(node) for node in pets.nodes().values()] == ["ec"] * 3


def test_custom_unique_roles(fleet: Fleet, tmp_path: Path) -> None:
    hosts = {"ewe": "--etcd", "ram": "--controlplane", "wether": "--worker"}
    with registered(fleet, tmp_path, "flock", hosts) as flock:
        assert {name: roles(node) for name, node in flock.nodes().items()} == {"ewe": "e", "ram": "c", "wether": ""}
