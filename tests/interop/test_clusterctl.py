"""The real clusterctl: looking at clusters, making them from templates, restarting Machines, and moving everything
from the embedded server to the real one and back.

Nothing is prepared for it: what it needs on a server is there because Remuda and the provider run there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remuda.lab.simulator.blueprint import Blueprint
from remuda.lab.simulator.kinds import OLD
from tests.interop.management import Embedded, Management, OnKubernetes
from tests.lab import require_peer
from tests.lab.clusterctl import PATIENCE, Tools, rows

Json = dict[str, Any]

NAMESPACE = "herd"
GROUP = "simulator.remuda.dev"
TEMPLATE = """
apiVersion: simulator.remuda.dev/v1alpha1
kind: SimulatedCluster
metadata: {name: "${CLUSTER_NAME}", namespace: "${NAMESPACE}"}
spec: {}
---
apiVersion: simulator.remuda.dev/v1alpha1
kind: SimulatedMachineTemplate
metadata: {name: "${CLUSTER_NAME}-machines", namespace: "${NAMESPACE}"}
spec: {template: {spec: {script: {bootSeconds: ${BOOT_SECONDS:=0}}}}}
---
apiVersion: simulator.remuda.dev/v1alpha1
kind: SimulatedBootstrapTemplate
metadata: {name: "${CLUSTER_NAME}-workers", namespace: "${NAMESPACE}"}
spec: {template: {spec: {}}}
---
apiVersion: simulator.remuda.dev/v1alpha1
kind: SimulatedControlPlane
metadata: {name: "${CLUSTER_NAME}", namespace: "${NAMESPACE}"}
spec:
  replicas: ${CONTROL_PLANE_MACHINE_COUNT}
  version: "${KUBERNETES_VERSION}"
  machineTemplate:
    spec:
      infrastructureRef:
        {apiGroup: simulator.remuda.dev, kind: SimulatedMachineTemplate, name: "${CLUSTER_NAME}-machines"}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: "${CLUSTER_NAME}"
  namespace: "${NAMESPACE}"
  labels: {team: "a"}
  annotations: {example.com/contact: "somebody"}
spec:
  clusterNetwork: {pods: {cidrBlocks: ["10.1.0.0/16"]}}
  infrastructureRef: {apiGroup: simulator.remuda.dev, kind: SimulatedCluster, name: "${CLUSTER_NAME}"}
  controlPlaneRef: {apiGroup: simulator.remuda.dev, kind: SimulatedControlPlane, name: "${CLUSTER_NAME}"}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: "${CLUSTER_NAME}-workers", namespace: "${NAMESPACE}"}
spec:
  clusterName: "${CLUSTER_NAME}"
  replicas: ${WORKER_MACHINE_COUNT}
  selector: {}
  template:
    metadata: {labels: {node.cluster.x-k8s.io/pool: workers}}
    spec:
      clusterName: "${CLUSTER_NAME}"
      version: "${KUBERNETES_VERSION}"
      bootstrap:
        configRef: {apiGroup: simulator.remuda.dev, kind: SimulatedBootstrapTemplate, name: "${CLUSTER_NAME}-workers"}
      infrastructureRef:
        {apiGroup: simulator.remuda.dev, kind: SimulatedMachineTemplate, name: "${CLUSTER_NAME}-machines"}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: "${CLUSTER_NAME}-workers", namespace: "${NAMESPACE}"}
spec:
  clusterName: "${CLUSTER_NAME}"
  selector: {matchLabels: {node.cluster.x-k8s.io/pool: workers}}
  checks: {unhealthyNodeConditions: [{type: Ready, status: "False", timeoutSeconds: 300}]}
"""


class MoveEnd(NamedTuple):
    tools: Tools
    cloud: Path

    @property
    def journal(self) -> str:
        return (self.cloud / "journal.jsonl").read_text()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cloud")


def make(tools: Tools, folder: Path, name: str, *arguments: str) -> None:
    """As people do it: generate from a template, apply."""
    template = folder / "cluster-template.yaml"
    template.write_text(TEMPLATE)
    common = ("--from", str(template), "--target-namespace", NAMESPACE, "--kubernetes-version", "v1.36.0")
    tools.kubectl("apply", "-f", "-", stdin=tools.clusterctl("generate", "cluster", name, *common, *arguments))


def _place(management: Management, folder: Path, cloud: Path) -> MoveEnd:
    tools = Tools(folder, management.kubeconfig, NAMESPACE)
    tools.kubectl("create", "namespace", NAMESPACE)
    return MoveEnd(tools, cloud)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, cloud: Path) -> Iterator[MoveEnd]:
    require_peer("kubectl", "clusterctl")
    folder = tmp_path_factory.mktemp("here")
    management = Embedded(folder / "processes", cloud)
    yield _place(management, folder, cloud)
    management.stop()


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, cloud: Path) -> Iterator[MoveEnd]:
    folder = tmp_path_factory.mktemp("there")
    management = OnKubernetes(folder / "processes", cloud)
    yield _place(management, folder, cloud)
    management.stop()


@pytest.fixture(scope="module")
def older_cluster(here: MoveEnd) -> str:
    """Of a provider that follows the v1beta1 contract, with a control plane of three."""
    blueprint = Blueprint(name="older", namespace=NAMESPACE, control_planes=3, workers=1, family=OLD)
    objects = {"apiVersion": "v1", "kind": "List", "items": [item.obj for item in blueprint.objects()]}
    here.tools.kubectl("create", "-f", "-", stdin=json.dumps(objects))
    here.tools.available("older")
    return "older"


@pytest.fixture(scope="module")
def cluster(here: MoveEnd, tmp_path_factory: pytest.TempPathFactory) -> str:
    make(
        here.tools,
        tmp_path_factory.mktemp("templates"),
        "c",
        "--control-plane-machine-count=1",
        "--worker-machine-count=2",
    )
    here.tools.available("c")
    here.tools.wait("machine", "--selector=node.cluster.x-k8s.io/pool=workers", "--for=condition=HealthCheckSucceeded")
    return "c"


def test_describe_shows_available_cluster_made_from_template(here: MoveEnd, cluster: str) -> None:
    told = rows(here.tools.clusterctl("describe", "cluster", cluster, "-n", NAMESPACE))
    assert told["Cluster/c"][:6] == ["3/3", "3", "3", "3", "True", "Available"]
    assert told["ClusterInfrastructure - SimulatedCluster/c"][:2] == ["True", "Provisioned"]
    assert told["ControlPlane - SimulatedControlPlane/c"][:6] == ["1/1", "1", "1", "1", "True", "Available"]
    assert told["MachineDeployment/c-workers"][:6] == ["2/2", "2", "2", "2", "True", "Available"]


def test_every_condition_is_shown_with_its_reason(here: MoveEnd, cluster: str) -> None:
    text = here.tools.clusterctl(
        "describe",
        "cluster",
        cluster,
        "-n",
        NAMESPACE,
        "--show-conditions=all",
        "--show-machinesets",
        "--grouping=false",
    )
    for type in (
        "HealthCheckSucceeded",
        "BootstrapConfigReady",
        "NodeHealthy",
        "WorkersAvailable",
        "RemoteConnectionProbe",
    ):
        assert type in text
    told = rows(text)
    assert all(f"Machine/{machine['metadata']['name']}" in told for machine in machines(here, cluster))
    assert any(name.startswith("MachineSet/c-workers-") for name in told)


def test_cluster_kubeconfig_reaches_its_nodes(here: MoveEnd, cluster: str) -> None:
    told = {machine["status"]["nodeRef"]["name"] for machine in machines(here, cluster)}
    assert len(told) == 3
    assert nodes(here, cluster).keys() == told


def machines(place: MoveEnd, cluster: str) -> list[Json]:
    return place.tools.list("machines", "-l", f"cluster.x-k8s.io/cluster-name={cluster}")


def nodes(place: MoveEnd, cluster: str) -> dict[str, str]:
    """The uids of the Nodes of a workload cluster."""
    return {name: node["metadata"]["uid"] for name, node in place.tools.nodes(cluster).items()}


def test_list_variables_shows_template_variables(here: MoveEnd, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TEMPLATE)
    told = here.tools.clusterctl("generate", "cluster", "x", "--from", str(tmp_path / "t.yaml"), "--list-variables")
    assert "KUBERNETES_VERSION" in told
    assert "BOOT_SECONDS" in told


# moving


MOVED = {
    *("Cluster", "MachineDeployment", "MachineSet", "Machine", "MachineHealthCheck", "Secret"),
    *("SimulatedCluster", "SimulatedControlPlane", "SimulatedMachine", "SimulatedMachineTemplate"),
    *("SimulatedBootstrap", "SimulatedBootstrapTemplate"),
}


class Remains(NamedTuple):
    """Of an object, all that must be the same after a move."""

    spec: Json
    data: Json
    labels: Json
    annotations: Json
    finalizers: list[str]
    owners: set[tuple[str, str, str, bool]]


def remains(tools: Tools) -> dict[str, Remains]:
    """Everything in the namespace that belongs to Cluster API or its providers, and every Secret."""
    names = tools.kubectl("get", "crds", "-l", "clusterctl.cluster.x-k8s.io", "-o", "name").split()
    kinds = [name.partition("/")[2] for name in names]
    return {path(obj): _remains(obj) for obj in tools.list(",".join([*kinds, "secrets"]))}


def path(obj: Json) -> str:
    """As kubectl takes it: `Machine.v1beta2.cluster.x-k8s.io/m-1`."""
    group, _, version = obj["apiVersion"].rpartition("/")
    return f"{'.'.join([obj['kind'], version, group] if group else [obj['kind']])}/{obj['metadata']['name']}"


def _remains(obj: Json) -> Remains:
    metadata = obj["metadata"]
    owners = {
        (owner["apiVersion"], owner["kind"], owner["name"], owner.get("controller", False))
        for owner in metadata.get("ownerReferences", [])
    }
    return Remains(
        obj.get("spec", {}),
        obj.get("data", {}),
        metadata.get("labels", {}),
        metadata.get("annotations", {}),
        metadata.get("finalizers", []),
        owners,
    )


def move(source: MoveEnd, target: MoveEnd) -> None:
    source.tools.clusterctl("move", "-n", NAMESPACE, "--to-kubeconfig", str(target.tools.kubeconfig))


def test_clusters_move_to_kubernetes_and_back_with_nothing_lost(
    here: MoveEnd, there: MoveEnd, cluster: str, older_cluster: str
) -> None:
    clusters = (cluster, older_cluster)
    before, journal = remains(here.tools), here.journal
    members = {name: nodes(here, name) for name in clusters}
    assert {place.split("/")[0].split(".")[0] for place in before} >= MOVED
    for source, target in ((here, there), (there, here)):
        move(source, target)
        assert remains(source.tools) == {}
        for name in clusters:
            target.tools.available(name)
        target.tools.wait("machines", "--all", "--for=condition=Available")
        assert remains(target.tools) == before
        assert {name: nodes(target, name) for name in clusters} == members
    assert here.journal == journal


def test_moved_clusters_are_scaled_and_deleted(here: MoveEnd, there: MoveEnd, cluster: str, older_cluster: str) -> None:
    """They are scaled where they have been moved to, and deleted there: servers come and go as they should."""
    move(here, there)
    there.tools.available(cluster)
    there.tools.available(older_cluster)
    there.tools.kubectl("scale", "machinedeployment/c-workers", "-n", NAMESPACE, "--replicas=3")
    there.tools.wait("machinedeployment/c-workers", "--for=jsonpath={.status.availableReplicas}=3")
    there.tools.kubectl("delete", "cluster", cluster, older_cluster, "-n", NAMESPACE, f"--timeout={PATIENCE}")
    events = [json.loads(line) for line in there.journal.splitlines()]
    standing = {event["name"] for event in events if event["event"] == "create"}
    standing -= {event["name"] for event in events if event["event"] == "remove"}
    assert standing == set()
    for place in remains(there.tools):
        there.tools.wait(place, "--for=delete")


# restarting


def test_restart_replaces_every_machine_of_a_deployment(here: MoveEnd, tmp_path: Path) -> None:
    make(here.tools, tmp_path, "restarted", "--control-plane-machine-count=1", "--worker-machine-count=1")
    here.tools.available("restarted")
    selector = "cluster.x-k8s.io/deployment-name=restarted-workers"
    (before,) = here.tools.list("machines", "-l", selector)
    here.tools.clusterctl("alpha", "rollout", "restart", "machinedeployment/restarted-workers", "-n", NAMESPACE)
    name = before["metadata"]["name"]
    here.tools.wait(f"machine/{name}", "--for=delete")
    here.tools.available("restarted")
    (after,) = here.tools.list("machines", "-l", selector)
    assert after["metadata"]["name"] != name
    here.tools.kubectl("delete", "cluster", "restarted", "-n", NAMESPACE, f"--timeout={PATIENCE}")
