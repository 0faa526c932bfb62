"""What is written and read: a custom kind with a schema like a Machine's, in objects of 2 KB, and who may use it."""

from __future__ import annotations

import json
from typing import Any

GROUP, VERSION, PLURAL, KIND = "bench.remuda.dev", "v1", "wagons", "Wagon"
USER = "bench"
SIZE = 2048

_TEXT = {"type": "string"}
_REFERENCE = {
    "type": "object",
    "required": ["kind", "name"],
    "properties": {name: {"type": "string", "minLength": 1} for name in ("apiGroup", "kind", "name")},
}
_CONDITION = {
    "type": "object",
    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "message": {"type": "string", "maxLength": 32768},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "type": {"type": "string", "maxLength": 316, "pattern": "^[A-Za-z][A-Za-z0-9]*$"},
    },
}
_SPEC = {
    "type": "object",
    "required": ["clusterName", "bootstrap", "infrastructureRef"],
    "properties": {
        "clusterName": {"type": "string", "minLength": 1, "maxLength": 63},
        "version": {"type": "string", "maxLength": 256},
        "replicas": {"type": "integer", "format": "int32", "minimum": 0, "default": 1},
        "paused": {"type": "boolean"},
        "sent": _TEXT,
        "bootstrap": {
            "type": "object",
            "properties": {"configRef": _REFERENCE, "dataSecretName": {"type": "string", "maxLength": 253}},
        },
        "infrastructureRef": _REFERENCE,
        "env": {
            "type": "array",
            "maxItems": 200,
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string", "maxLength": 256}, "value": _TEXT},
            },
        },
        "labels": {"type": "object", "additionalProperties": _TEXT},
    },
}
_STATUS = {
    "type": "object",
    "properties": {
        "phase": {"type": "string", "enum": ["Pending", "Provisioning", "Running", "Failed"]},
        "beat": {"type": "integer", "format": "int64"},
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "maxItems": 32,
            "items": _CONDITION,
        },
    },
}


def definition() -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": _SPEC, "status": _STATUS}}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": PLURAL, "singular": "wagon", "kind": KIND, "listKind": f"{KIND}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def access() -> list[tuple[str, dict[str, Any]]]:
    """A role and its binding, each with the path it is posted to."""
    base = "/apis/rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": [GROUP], "resources": [PLURAL, f"{PLURAL}/status"], "verbs": ["*"]}
    role = {"metadata": {"name": "bench"}, "rules": [rule]}
    binding = {
        "metadata": {"name": "bench"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bench"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    }
    return [(f"{base}/clusterroles", role), (f"{base}/clusterrolebindings", binding)]


def collection(namespace: str = "default") -> str:
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"


def wagon(name: str) -> str:
    """An object of 2 KB as a client sends it."""
    obj: dict[str, Any] = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": name, "labels": {"cluster": "prairie", "pool": "workers"}},
        "spec": {
            "clusterName": "prairie",
            "version": "v1.36.3+k3s1",
            "replicas": 3,
            "sent": "0",
            "bootstrap": {"configRef": {"apiGroup": GROUP, "kind": "Harness", "name": name}},
            "infrastructureRef": {"apiGroup": GROUP, "kind": "Horse", "name": name},
            "labels": {f"label-{i}": f"value-{i}" for i in range(6)},
            "env": [],
        },
    }
    while (left := SIZE - len(json.dumps(obj, separators=(",", ":")))) > 100:
        obj["spec"]["env"].append({"name": f"OPTION_{len(obj['spec']['env'])}", "value": "x" * min(60, left)})
    return json.dumps(obj, separators=(",", ":"))


def status_patch(beat: str) -> str:
    """What a controller's heartbeat sends; `beat` is spliced in as it is."""
    condition = (
        '{"type":"Ready","status":"True","reason":"Running","message":"beat @B@",'
        '"lastTransitionTime":"2026-01-01T00:00:00Z"}'
    )
    return f'{{"status":{{"phase":"Running","beat":@B@,"conditions":[{condition}]}}}}'.replace("@B@", beat)
