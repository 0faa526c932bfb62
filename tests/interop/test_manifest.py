"""deploy/kubernetes.yaml on the real kube-apiserver: it takes every object, lets the Pod in by its own standard, and
the rights of the account in it suffice for a cluster's whole way. There is no kubelet: the manager is a process, with a
token of exactly that account and the arguments of its Deployment."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.clusters import VERSION, DeclaredCluster, pool
from tests.lab.core_manager import create
from tests.lab.ports import free_port
from tests.lab.up import Json
from tests.lab.upstream import DISABLED_PLUGINS
from tests.lab.upstream_core import NAMESPACE, ManagementOnUpstream

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes.yaml"


def objects() -> list[Json]:
    return list(yaml.safe_load_all(MANIFEST.read_text()))


def pod() -> Json:
    (deployment,) = [one for one in objects() if one["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    metadata = {**template["metadata"], "name": "remuda-manager-x", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def arguments() -> list[str]:
    """As the Deployment has them, where this process can be found instead of the Pod."""
    (container,) = pod()["spec"]["containers"]
    _, *given = (one.replace("$(POD_NAMESPACE)", NAMESPACE) for one in container["args"])
    port = free_port()
    here = {
        "--nodes-listen": f"127.0.0.1:{port}",
        "--server-url": f"https://127.0.0.1:{port}",
        "--webhook-listen": (webhooks := f"127.0.0.1:{free_port()}"),
        "--webhook-url": f"https://{webhooks}",
        "--health-listen": f"127.0.0.1:{free_port()}",
    }
    return [f"{name}={here.get(name, value)}" for name, _, value in (one.partition("=") for one in given)]


@pytest.fixture(scope="module")
def management() -> Iterator[ManagementOnUpstream]:
    enforcing = ",".join(name for name in DISABLED_PLUGINS if name != "PodSecurity")
    found = ManagementOnUpstream(f"--disable-admission-plugins={enforcing}")
    try:
        for obj in objects():
            create(found, obj)
        yield found
    finally:
        found.stop()


def test_manager_pod_passes_restricted_pod_security(management: ManagementOnUpstream) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All&fieldValidation=Strict"
    assert management.http("POST", path, pod()).code == 201
    loose = copy.deepcopy(pod())
    del loose["spec"]["containers"][0]["securityContext"]["capabilities"]
    refused = management.http("POST", path, loose)
    assert refused.code == 403
    assert 'violates PodSecurity "restricted' in refused.body["message"]


def test_service_account_rights_suffice_for_cluster_lifecycle(management: ManagementOnUpstream, tmp_path: Path) -> None:
    management.start_manager(*arguments(), "--lease-seconds=60")
    management.add_nano(tmp_path, VERSION)
    cluster = DeclaredCluster(management, "prairie", [pool("server", 1, "ec"), pool("worker", 1, "w")])
    cluster.apply()
    cluster.has_nodes(2)
    cluster.is_well()
    cluster.delete()
    cluster.leaves_nothing()
    said = management.log.read_text()
    assert "forbidden" not in said.lower(), said
