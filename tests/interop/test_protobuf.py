"""What kubectl sends as protobuf is stored as the real server stores it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.interop.semantics.normal import Normaliser
from tests.lab import Ours, Server, Upstream, require_peer
from tests.lab.certificates import Authority

_CREATE = {
    "/api/v1/namespaces/{ns}/configmaps/c": "create configmap c --from-literal=a=b --from-file=bin={binary}",
    "/api/v1/namespaces/{ns}/secrets/s": "create secret generic s --from-literal=a=b",
    "/api/v1/namespaces/{ns}/secrets/d": "create secret docker-registry d --docker-username=u --docker-password=p",
    "/api/v1/namespaces/{ns}/secrets/t": "create secret tls t --cert={certificate} --key={key}",
    "/api/v1/namespaces/{ns}/serviceaccounts/sa": "create serviceaccount sa",
    "/api/v1/namespaces/{ns}/services/en": "create service externalname en --external-name=a.b",
    "/apis/apps/v1/namespaces/{ns}/deployments/d": "create deployment d --image=nginx --replicas=3 --port=80",
    "/apis/batch/v1/namespaces/{ns}/jobs/j": "create job j --image=busybox -- sleep 5",
    "/apis/batch/v1/namespaces/{ns}/cronjobs/cj": "create cronjob cj --image=busybox --schedule=@hourly -- date",
    "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets/p": "create pdb p --selector=app=x --min-available=50%",
    "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses/i": "create ingress i --rule=a.b/c*=svc:80,tls=sec --class=x",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles/r": (
        "create role r --verb=get,list --resource=pods,deployments.apps --resource-name=x"
    ),
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings/b": (
        "create rolebinding b --role=r --user=u --serviceaccount={ns}:sa"
    ),
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/{ns}-a": "create clusterrole {ns}-a --aggregation-rule=a=b",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/{ns}-n": (
        "create clusterrole {ns}-n --verb=get --non-resource-url=/logs/"
    ),
    "/apis/scheduling.k8s.io/v1/priorityclasses/{ns}": "create priorityclass {ns} --value=1000 --description=d",
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory, run_tag: str) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("protobuf")
    certificate, key = Authority("lab").server("127.0.0.1")
    for name, content in {"certificate": certificate, "key": key, "binary": bytes(range(256))}.items():
        (folder / name).write_bytes(content)
    return {"ns": f"protobuf-{run_tag}", **{path.name: str(path) for path in folder.iterdir()}}


@pytest.fixture(scope="module", autouse=True)
def namespace(upstream: Upstream, ours: Ours, names: dict[str, str]) -> None:
    for server in (upstream, ours):
        server.http("POST", "/api/v1/namespaces", {"metadata": {"name": names["ns"]}})


def _made(kubectl: Path, server: Server, path: str, names: dict[str, str], tag: str) -> Any:
    command = _CREATE[path].format(**names).split()
    flags = ["--kubeconfig", str(server.kubeconfig), "--namespace", names["ns"]]
    subprocess.run([str(kubectl), *flags, *command], check=True, capture_output=True, timeout=60)
    return Normaliser(tag, server.url).value(server.http("GET", path.format(**names)).body)


@pytest.mark.parametrize("path", _CREATE)
def test_protobuf_create_stores_same_object_as_kube_apiserver(
    path: str, upstream: Upstream, ours: Ours, names: dict[str, str], run_tag: str
) -> None:
    (kubectl,) = require_peer("kubectl")
    theirs, mine = (_made(kubectl, server, path, names, run_tag) for server in (upstream, ours))
    assert theirs["metadata"]["name"]
    assert mine == theirs
