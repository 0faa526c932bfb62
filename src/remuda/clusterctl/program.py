"""Kubernetes objects that run the program: its Deployment, its Services, and its RBAC rules. Pure.

The Pod meets the Pod Security Standard "restricted" and writes only to emptyDir volumes: all state is in objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec
import yaml

from remuda.capi import inventory

Json = dict[str, Any]

NAMESPACE = inventory.NAMESPACE
MANAGER = "remuda-manager"
NODES_PORT, WEBHOOK_PORT, HEALTH_PORT = 8443, 9443, 8080
_LABELS = {"app.kubernetes.io/name": "remuda"}
_USER = 65532
_HOME = "/var/lib/remuda"
_MEMORY = "4Gi"  # 500 clusters need half of it, and a little more for a moment after a restart
_WIDTH = 160


class Mount(msgspec.Struct, frozen=True):
    """A folder of the Pod, and the source of its volume."""

    name: str
    path: str
    source: Mapping[str, Any]
    read_only: bool = True


_OWN = (Mount("home", _HOME, {"emptyDir": {}}, False), Mount("tmp", "/tmp", {"emptyDir": {}}, False))  # noqa: S108


def text(objects: Sequence[Json]) -> str:
    apart = msgspec.json.decode(msgspec.json.encode(objects))  # a copy: YAML would write shared values as aliases
    return str(yaml.safe_dump_all(apart, sort_keys=False, width=_WIDTH))


def named(api_version: str, kind: str, name: str, namespace: str = NAMESPACE) -> Json:
    metadata: Mapping[str, Any] = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": {**metadata, "labels": dict(_LABELS)}}


def rights() -> dict[tuple[str, str], Json]:
    """Return the objects of rbac.yaml by kind and name."""
    content = files("remuda.clusterctl").joinpath("rbac.yaml").read_text()
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(content)}


def services(type: str = "") -> list[Json]:
    """Return the Services through which hosts reach the manager and the API server reaches its admission webhooks."""
    return [_service("remuda-nodes", NODES_PORT, type), _service("remuda-webhooks", WEBHOOK_PORT)]


def _service(name: str, target: int, type: str = "") -> Json:
    spec = {"selector": _LABELS, "ports": [{"port": 443, "targetPort": target}]}
    return {**named("v1", "Service", name), "spec": {**({"type": type} if type else {}), **spec}}


def arguments(controllers: str, server_url: str, job_image: str) -> list[str]:
    """Return the arguments of `remuda` for a Pod that has its namespace in $(POD_NAMESPACE)."""
    return [
        "manager",
        *([f"--controllers={controllers}"] if controllers else []),
        "--lease-namespace=$(POD_NAMESPACE)",
        f"--health-listen=0.0.0.0:{HEALTH_PORT}",
        f"--webhook-listen=0.0.0.0:{WEBHOOK_PORT}",
        "--webhook-url=https://remuda-webhooks.$(POD_NAMESPACE).svc",
        f"--nodes-listen=0.0.0.0:{NODES_PORT}",
        f"--server-url={server_url}",
        f"--job-image={job_image}",
    ]


def deployment(image: str, args: Sequence[str], mounts: Sequence[Mount] = ()) -> Json:
    """Return the Deployment. It has one replica, because a tunnel ends at the replica that accepted it, which must be
    the leader."""
    mounts = (*_OWN, *mounts)
    container = {
        "name": "manager",
        "image": image,
        "command": ["remuda"],
        "args": list(args),
        "env": [
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "HOME", "value": _HOME},
        ],
        "ports": [
            {"name": name, "containerPort": port}
            for name, port in (("nodes", NODES_PORT), ("webhooks", WEBHOOK_PORT), ("health", HEALTH_PORT))
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": _MEMORY}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": one.name, "mountPath": one.path, **({"readOnly": True} if one.read_only else {})} for one in mounts
        ],
    }
    pod = {
        "serviceAccountName": MANAGER,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": one.name, **one.source} for one in mounts],
    }
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": _LABELS},
        "template": {"metadata": {"labels": _LABELS}, "spec": pod},
    }
    return {**named("apps/v1", "Deployment", MANAGER), "spec": spec}
