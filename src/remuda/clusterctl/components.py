"""What `clusterctl init` installs: the definitions, rights and the one program of our three providers. Pure.

Bootstrap, control plane and infrastructure provider are one program. Its Deployment is among the components of the
bootstrap provider, without which neither of the others is of use; those bring their definitions. The rights are those
of rbac.yaml, which tests hold to what the program asks for. Cluster API's core is upstream's there, so the program runs
without ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import msgspec
import yaml

from remuda.capi import inventory
from remuda.capi import names as capi_names
from remuda.capi.inventory import ProviderType
from remuda.providers import names
from remuda.providers import setup as providers

Json = dict[str, Any]

NAMESPACE = inventory.NAMESPACE
SERVER_URL, JOB_IMAGE = "REMUDA_SERVER_URL", "REMUDA_JOB_IMAGE"  # variables

_MANAGER = "remuda-manager"
_GRANTED = ("remuda-manager-core", "remuda-manager-providers")  # of rbac.yaml
_RBAC = "rbac.authorization.k8s.io"
_NODES_PORT, _WEBHOOK_PORT, _HEALTH_PORT = 8443, 9443, 8080
_LABELS = {"app.kubernetes.io/name": "remuda"}
_USER = 65532
_EVERY_VERB = ["get", "list", "watch", "create", "update", "patch", "delete"]
_WIDTH = 160


def components(type: ProviderType, version: str) -> str:
    """The text of <type>-components.yaml. `version`: of the program, as in "v0.1.0"."""
    objects = [_named("v1", "Namespace", NAMESPACE, namespace=""), *definitions(type)]
    if type == "BootstrapProvider":
        objects += [*_rights(), *_services(), _deployment(version)]
    apart = msgspec.json.decode(msgspec.json.encode(objects))  # what two share would be written as a reference
    return str(yaml.safe_dump_all(apart, sort_keys=False, width=_WIDTH))


def definitions(type: ProviderType) -> list[Json]:
    """Those whose labels say that they are of that provider; who is of none is of the infrastructure's."""
    own = {one.type: one.label for one in providers.entries("")}
    found = [(one, one["metadata"]["labels"].get(capi_names.PROVIDER)) for one in providers.definitions()]
    return [one for one, label in found if (label or own["InfrastructureProvider"]) == own[type]]


def rights() -> dict[tuple[str, str], Json]:
    """What rbac.yaml says, by kind and name."""
    text = files("remuda.clusterctl").joinpath("rbac.yaml").read_text()
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}


def _rights() -> list[Json]:
    """All of it in one role: on a cluster with upstream's core, what aggregates to its manager is upstream's."""
    known = rights()
    rules = [rule for name in _GRANTED for rule in known["ClusterRole", name]["rules"]]
    core = {"apiGroups": [names.GROUP, names.MACHINE_GROUP], "resources": ["*"], "verbs": _EVERY_VERB}
    shown = {**_named(f"{_RBAC}/v1", "ClusterRole", f"{_MANAGER}-kinds", namespace=""), "rules": [core]}
    shown["metadata"]["labels"] = {capi_names.AGGREGATE_TO_MANAGER: "true"}
    role = {**_named(f"{_RBAC}/v1", "ClusterRole", _MANAGER, namespace=""), "rules": rules}
    kept = [known[kind, _MANAGER] for kind in ("ServiceAccount", "ClusterRoleBinding", "Role", "RoleBinding")]
    return [*kept, role, shown]


def _services() -> list[Json]:
    """Where hosts are served, and where the API server finds admission."""
    return [
        _service("remuda-nodes", 443, _NODES_PORT),
        _service("remuda-webhooks", 443, _WEBHOOK_PORT),
    ]


def _service(name: str, port: int, target: int) -> Json:
    spec = {"selector": _LABELS, "ports": [{"port": port, "targetPort": target}]}
    return {**_named("v1", "Service", name), "spec": spec}


def _deployment(version: str) -> Json:
    image = f"localhost/remuda:{version}"  # clusterctl's own setting `images` says where it really is
    container = {
        "name": "manager",
        "image": image,
        "command": ["remuda"],
        "args": _arguments(image),
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "ports": [
            {"name": name, "containerPort": port}
            for name, port in (("nodes", _NODES_PORT), ("webhooks", _WEBHOOK_PORT), ("health", _HEALTH_PORT))
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "serviceAccountName": _MANAGER,
        "securityContext": {"runAsNonRoot": True, "runAsUser": _USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": _LABELS},
        "template": {"metadata": {"labels": _LABELS}, "spec": pod},
    }
    return {**_named("apps/v1", "Deployment", _MANAGER), "spec": spec}


def _arguments(image: str) -> list[str]:
    """Of `remuda`, in a Pod whose namespace is in $(POD_NAMESPACE)."""
    return [
        "manager",
        "--controllers=providers",
        "--lease-namespace=$(POD_NAMESPACE)",
        f"--health-listen=0.0.0.0:{_HEALTH_PORT}",
        f"--webhook-listen=0.0.0.0:{_WEBHOOK_PORT}",
        "--webhook-url=https://remuda-webhooks.$(POD_NAMESPACE).svc",
        f"--nodes-listen=0.0.0.0:{_NODES_PORT}",
        f"--server-url=${{{SERVER_URL}}}",
        f"--job-image=${{{JOB_IMAGE}:={image}}}",
    ]


def _named(api_version: str, kind: str, name: str, namespace: str = NAMESPACE) -> Json:
    metadata: Mapping[str, Any] = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": {**metadata, "labels": dict(_LABELS)}}
