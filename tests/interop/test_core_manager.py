"""Our providers under upstream's core: the real core manager of Cluster API on the real kube-apiserver, with its own
webhooks and rights, and `remuda manager` with providers alone. Hosts are processes of this machine, with nano.

Straight from objects of Cluster API, which the real clusterctl makes of our template, a cluster is made, changed in
place, scaled, loses a server and goes; and one that is declared stands on the same core.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.program import run
from tests.lab.clusterctl import Tools
from tests.lab.clusters import (
    CONTROL_PLANES,
    DEPLOYMENTS,
    MACHINES,
    NAMESPACE,
    VERSION,
    DeclaredCluster,
    is_ready,
    pool,
)
from tests.lab.up import Json, condition
from tests.lab.upstream_core import UpstreamCore

CLUSTERS = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/clusters"
OLDER = f"/apis/cluster.x-k8s.io/v1beta1/namespaces/{NAMESPACE}"
BOOTSTRAPS = f"/apis/rke.cattle.io/v1/namespaces/{NAMESPACE}/rkebootstraps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOOK = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/rke-bootstrap-cleanup"
PATIENCE_SECONDS = 800.0


@pytest.fixture(scope="module")
def management(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpstreamCore]:
    found = UpstreamCore()
    try:
        found.add_nano(tmp_path_factory.mktemp("nano"), VERSION)
        yield found
    finally:
        found.stop()


@pytest.fixture
def tools(management: UpstreamCore, tmp_path: Path) -> Tools:
    written = run("clusterctl-repository", tmp_path / "repository")
    assert (written.code, written.err) == (0, "")
    return Tools(tmp_path, management.kubeconfig, NAMESPACE)


class CapiCluster(DeclaredCluster):
    """A cluster by objects of Cluster API alone, from the template that clusterctl has of us: a pool is a
    MachineDeployment."""

    def __init__(self, fleet: UpstreamCore, tools: Tools, name: str, servers: int, workers: int) -> None:
        super().__init__(fleet, name, [pool("servers", servers, "ec"), pool("workers", workers, "w")])
        self.tools = tools

    def objects(self) -> list[Json]:
        """As the book has them made, with the configuration of the cluster added."""
        servers, workers = (str(self.pools[name]["quantity"]) for name in ("servers", "workers"))
        text = self.tools.clusterctl(
            *("--config", str(self.tools.home / "repository" / "clusterctl.yaml"), "generate", "cluster", self.name),
            *("--infrastructure", "remuda", "--flavor", "process", "--kubernetes-version", self.version),
            *("--control-plane-machine-count", servers, "--worker-machine-count", workers),
            *("--target-namespace", NAMESPACE),
        )
        found: list[Json] = list(yaml.safe_load_all(text))
        for obj in found:
            if obj["kind"] == "RKEControlPlane":
                obj["spec"] |= self.config
        return found

    def apply(self) -> None:
        for obj in self.objects():
            reply = self.fleet.put(obj)
            assert reply.code in (200, 201), reply

    def becomes_ready(self, seconds: float = PATIENCE_SECONDS) -> None:
        self.fleet.until(CONTROL_PLANES, self.name, is_ready, seconds=seconds)
        self.fleet.until(CLUSTERS, self.name, lambda obj: condition(obj, "Available") == "True", seconds=seconds)

    def machines(self, pool: str = "") -> dict[str, Json]:
        wanted = {"cluster.x-k8s.io/cluster-name": self.name}
        if pool:
            wanted["cluster.x-k8s.io/deployment-name"] = f"{self.name}-{pool}"
        query = "%2C".join(f"{key}%3D{value}" for key, value in wanted.items())
        return {one["metadata"]["name"]: one for one in self.fleet.items(f"{MACHINES}?labelSelector={query}")}

    def delete(self, seconds: float = PATIENCE_SECONDS) -> None:
        self.fleet.delete(CLUSTERS, self.name, seconds=seconds)


def test_cluster_from_capi_objects_is_managed_by_upstream_core(management: UpstreamCore, tools: Tools) -> None:
    cluster = CapiCluster(management, tools, "prairie", 3, 1)
    cluster.apply()
    nodes = cluster.has_nodes(4, PATIENCE_SECONDS)
    every_machine_runs(cluster)
    first = cluster.identities()
    assert {one.provider_id for one in first.values()} == {node["spec"]["providerID"] for node in nodes.values()}
    the_core_tells_of_our_objects(cluster)

    cluster.config["machineGlobalConfig"] = {"debug": True}
    generation = management.http("GET", f"{CONTROL_PLANES}/prairie").body["metadata"]["generation"]
    assert not any("debug" in text for text in configurations(cluster))
    cluster.apply()
    management.until(CONTROL_PLANES, "prairie", lambda obj: settled_after(obj, generation), seconds=PATIENCE_SECONDS)
    assert all("debug" in text for text in configurations(cluster))
    assert cluster.identities() == first

    cluster.pools["workers"]["quantity"] = 2
    cluster.apply()
    cluster.has_nodes(5, PATIENCE_SECONDS)
    a_server_leaves_before_it_goes(cluster)
    every_machine_runs(cluster)

    cluster.delete()
    cluster.leaves_nothing()


def every_machine_runs(cluster: CapiCluster) -> None:
    def run() -> bool:
        return all(
            one["status"].get("phase") == "Running"
            and (one["status"].get("nodeRef") or {}).get("name")
            and condition(one, "Available") == "True"
            for one in cluster.machines().values()
        )

    cluster.until(run, "every Machine is Running and has its Node", PATIENCE_SECONDS)


def the_core_tells_of_our_objects(cluster: CapiCluster) -> None:
    """What our objects say of themselves is what upstream's say of them, also to who asks in the older version."""
    management, path = cluster.fleet, f"{CLUSTERS}/{cluster.name}"
    told = ("InfrastructureReady", "ControlPlaneInitialized", "ControlPlaneAvailable", "RemoteConnectionProbe")
    cluster.until(
        lambda: are_true(management.http("GET", path).body, *told), "the Cluster tells of both", PATIENCE_SECONDS
    )
    told = ("BootstrapConfigReady", "InfrastructureReady", "NodeHealthy")
    cluster.until(
        lambda: all(are_true(machine, *told) for machine in cluster.machines().values()),
        "every Machine tells of both, and of its Node",
        PATIENCE_SECONDS,
    )
    cluster.until(lambda: is_described(cluster), "clusterctl describes it", PATIENCE_SECONDS)
    older = management.http("GET", f"{OLDER}/clusters/{cluster.name}").body
    assert (older["apiVersion"], older["status"]["phase"]) == ("cluster.x-k8s.io/v1beta1", "Provisioned")


def are_true(obj: Json, *types: str) -> bool:
    return all(condition(obj, type) == "True" for type in types)


def is_described(cluster: CapiCluster) -> bool:
    told = cluster.tools.described(cluster.name)
    machines = {f"Machine/{name}" for name in cluster.machines()}
    return told[f"Cluster/{cluster.name}"][-3:-1] == ["True", "Available"] and machines <= set(told)


def settled_after(obj: Json, generation: int) -> bool:
    status = obj.get("status") or {}
    return bool(is_ready(obj) and status.get("observedGeneration", 0) > generation)


def configurations(cluster: CapiCluster) -> list[str]:
    """What the distribution reads on each host."""
    path = "root/etc/rancher/nano/config.yaml.d/50-rancher.yaml"
    return [(cluster.fleet.hosts / "process" / name / path).read_text() for name in cluster.machines()]


def a_server_leaves_before_it_goes(cluster: CapiCluster) -> None:
    """The core waits for our hook before it ends the server, and makes another in its place."""
    management, before = cluster.fleet, cluster.machines("servers")
    first = {
        one["metadata"]["name"]
        for one in management.items(BOOTSTRAPS)
        if one["metadata"]["labels"].get("rke.cattle.io/init-node") == "true"
    }
    name, machine = next(
        (name, one) for name, one in before.items() if one["spec"]["bootstrap"]["configRef"]["name"] not in first
    )
    assert HOOK in machine["metadata"]["annotations"]
    since = machine["metadata"]["resourceVersion"]
    assert management.http("DELETE", f"{MACHINES}/{name}").code == 200
    management.until(MACHINES, name, lambda obj: not obj, seconds=PATIENCE_SECONDS)
    scenario = list(changes(management, name, since))
    waited = [one for one in scenario if reason(one, "Deleting") == "WaitingForPreTerminateHook"]
    assert waited, "the core has not waited for the hook"
    assert HOOK in waited[0]["metadata"]["annotations"]
    assert HOOK not in scenario[-1]["metadata"].get("annotations", {})
    cluster.has_nodes(5, PATIENCE_SECONDS)
    assert set(before) - set(cluster.machines("servers")) == {name}


def reason(obj: Json, type: str) -> str:
    found = [one["reason"] for one in obj["status"].get("conditions") or () if one["type"] == type]
    return str(found[0]) if found else ""


def changes(management: UpstreamCore, name: str, since: str) -> Iterator[dict[str, Any]]:
    """What became of a Machine, to its end."""
    query = f"{MACHINES}?watch=1&fieldSelector=metadata.name%3D{name}&resourceVersion={since}"
    for line in management.stream(query):
        change = json.loads(line)
        assert change["type"] != "ERROR", change
        yield change["object"]
        if change["type"] == "DELETED":
            return
    raise AssertionError(f"the end of Machine {name} was not told")


def test_declared_cluster_is_managed_by_upstream_core(management: UpstreamCore) -> None:
    cluster = DeclaredCluster(management, "mesa", [pool("servers", 1, "ec"), pool("workers", 1, "w")])
    cluster.apply()
    cluster.has_nodes(2, PATIENCE_SECONDS)
    cluster.is_well(PATIENCE_SECONDS)
    assert len(management.items(DEPLOYMENTS)) == 2
    cluster.delete(PATIENCE_SECONDS)
    cluster.leaves_nothing()


def test_second_core_manager_is_refused_and_changes_nothing(management: UpstreamCore, tmp_path: Path) -> None:
    before = management.http("GET", DEFINITIONS).body
    for wanted in ("", "machineset"):
        chosen = ("--controllers", wanted) if wanted else ()
        refused = run("manager", "--kubeconfig", management.kubeconfig, "--lease-namespace", "default", *chosen)
        assert (refused.code, refused.out) == (1, ""), refused
        assert "machines.cluster.x-k8s.io" in refused.err
        assert "already installed by another program" in refused.err
        assert "--controllers=providers,provisioning" in refused.err
    assert management.http("GET", DEFINITIONS).body["items"] == before["items"]


def test_manifest_rights_suffice_without_forbidden_errors(management: UpstreamCore) -> None:
    """Said last: nobody was refused anything."""
    for log in (management.log, management.core.log):
        assert [line for line in log.read_text().splitlines() if "forbidden" in line.lower()] == []
