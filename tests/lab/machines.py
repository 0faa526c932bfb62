"""Machines of one Cluster on `remuda up`, as users apply them, whatever their driver; and what must be left of them."""

from __future__ import annotations

import json
from typing import Any

from remuda.providers.shared.names import machine_log
from tests.lab.up import DRIVER_MACHINES, DRIVERS, RKE, SECRETS, Up, condition, eventually

CLUSTER = """\
apiVersion: rke.cattle.io/v1
kind: RKECluster
metadata: {name: prairie}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: prairie}
spec:
  infrastructureRef: {apiGroup: rke.cattle.io, kind: RKECluster, name: prairie}
"""

MACHINE = """\
apiVersion: rke-machine.cattle.io/v1
kind: %(kind)s
metadata:
  name: %(name)s
  labels: {cluster.x-k8s.io/cluster-name: prairie}
spec: %(spec)s
---
apiVersion: rke.cattle.io/v1
kind: RKEBootstrap
metadata:
  name: %(name)s
  labels: {cluster.x-k8s.io/cluster-name: prairie}
spec: {clusterName: prairie}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata:
  name: %(name)s
  labels: {cluster.x-k8s.io/cluster-name: prairie}
spec:
  clusterName: prairie
  bootstrap: {configRef: {apiGroup: rke.cattle.io, kind: RKEBootstrap, name: %(name)s}}
  infrastructureRef: {apiGroup: rke-machine.cattle.io, kind: %(kind)s, name: %(name)s}
"""

LOOK = {
    "files": [{"path": "/etc/prairie/grass", "content": "Z3JlZW4=", "permissions": "0600"}],
    "instructions": [
        {
            "name": "look",
            "command": "/bin/sh",
            "args": ["-c", "echo $(cat /etc/prairie/grass) on $(hostname), $(cat /proc/1/comm)"],
            "saveOutput": True,
        }
    ],
}


def make(up: Up, driver: str, name: str, spec: dict[str, Any]) -> None:
    up.until(DRIVERS, driver, lambda obj: condition(obj, "Active") == "True")
    up.apply(MACHINE % {"kind": f"{driver.capitalize()}Machine", "name": name, "spec": json.dumps(spec)})


def provisioned(obj: dict[str, Any]) -> bool:
    return bool(((obj.get("status") or {}).get("initialization") or {}).get("provisioned"))


def ready(up: Up, driver: str, name: str) -> dict[str, Any]:
    found = up.until(f"{DRIVER_MACHINES}/{driver}machines", name, provisioned)
    up.until(f"{RKE}/rkebootstraps", name, lambda obj: condition(obj, "AgentConnected") == "True")
    return found


def nothing_is_left(up: Up, name: str) -> None:
    def left() -> list[str]:
        paths = ("/apis/batch/v1/jobs", "/api/v1/pods", SECRETS, f"{RKE}/rkebootstraps")
        paths += tuple(f"{DRIVER_MACHINES}/{kind}machines" for kind in ("nspawn", "existing"))
        paths += tuple(
            f"{base}/namespaces/default/{kind}"
            for base, kind in (
                ("/api/v1", "serviceaccounts"),
                ("/apis/rbac.authorization.k8s.io/v1", "roles"),
                ("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
            )
        )
        kept = machine_log(name)  # until its Cluster is deleted
        return [f"{path}: {found}" for path in paths for found in up.names(path) if name in found and found != kept]

    eventually(lambda: not left(), lambda: f"left: {left()}")
