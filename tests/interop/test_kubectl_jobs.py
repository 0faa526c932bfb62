"""The real kubectl on a Job that `remuda up` runs: logs while they are written, the Pod, the end."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from remuda.jobs import COMMAND, MANAGED_BY, marks
from remuda.jobs.marks import FILE, JobKey
from remuda.providers.shared.drivers.sim import Sim
from tests.interop.test_kubectl import Kubectl
from tests.lab import require_peer
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.up import Up

ORDER = {
    "driver": "sim", "action": "create", "name": "m-1", "hostname": "m-1", "namespace": "default", "machine": "m-1",
    "uid": "u-1", "cluster": "c", "owner": "us", "options": {"bootSeconds": 2}, "stateSecret": "m-1-machine-state",
}  # fmt: skip
MANIFEST = """
apiVersion: v1
kind: Secret
metadata: {name: m-1-machine-state}
type: rke.cattle.io/machine-state
---
apiVersion: v1
kind: Secret
metadata: {name: order}
stringData: {order.json: 'ORDER', value: "#!/bin/sh"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: state}
rules:
- {apiGroups: [""], resources: [secrets], resourceNames: [m-1-machine-state], verbs: [get, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: state}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: state}
subjects: [{kind: ServiceAccount, name: default, namespace: default}]
""".replace("ORDER", json.dumps(ORDER))
CONTAINER = {
    "name": "machine",
    "image": "remuda",
    "command": [*COMMAND],
    "volumeMounts": [{"name": "order", "mountPath": "/run/secrets/machine"}],
}
POD = {
    "restartPolicy": "Never",
    "containers": [CONTAINER],
    "volumes": [{"name": "order", "secret": {"secretName": "order"}}],
}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "m-1-machine-provision", "namespace": "default"},
    "spec": {"managedBy": MANAGED_BY, "backoffLimit": 0, "template": {"spec": POD}},
}


@pytest.fixture
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    (path,) = require_peer("kubectl")
    server = Up()
    try:
        yield Kubectl(path, server, tmp_path_factory.mktemp("kubectl"), "default")
    finally:
        server.stop()


def server(kubectl: Kubectl) -> Up:
    assert isinstance(kubectl.server, Up)
    return kubectl.server


def test_kubectl_follows_and_inspects_job(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    content = {"order.json": json.dumps(ORDER).encode(), "value": b"#!/bin/sh"}
    key = JobKey.load(server(kubectl).kubeconfig.parent / FILE)  # as the manager, who alone has it
    kubectl("create", "-f", "-", stdin=json.dumps(marks.sign(key, JOB, {"secrets/order": content}, Sim.needs.rights)))
    kubectl("wait", "--for=jsonpath={.status.ready}=1", "job/m-1-machine-provision", f"--timeout={LIMIT_SECONDS:.0f}s")
    followed = kubectl("logs", "-f", "job/m-1-machine-provision")
    assert followed.splitlines()[0] == "requesting server m-1 from driver sim"
    assert followed.splitlines()[-1] == "server m-1 is created"
    kubectl("wait", "--for=condition=Complete", "job/m-1-machine-provision", f"--timeout={LIMIT_SECONDS:.0f}s")
    assert kubectl("logs", "job/m-1-machine-provision", "--tail=1") == "server m-1 is created\n"
    assert server(kubectl).remuda("machine", "logs", "m-1").stdout == followed
    assert kubectl("get", "pods", "--no-headers").split()[1:3] == ["0/1", "Completed"]
    assert "1/1" in kubectl("get", "job", "m-1-machine-provision", "--no-headers")
    assert "Exit Code:    0" in kubectl("describe", "pods")
    kubectl("delete", "job", "m-1-machine-provision")
    kubectl("wait", "--for=delete", "pods", "--all", f"--timeout={LIMIT_SECONDS:.0f}s")
