"""Every declaration builds, agrees with its shape, and accepts a plain manifest."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest

from remuda.apiserver.kinds import builtin_resources
from remuda.apiserver.resource import Resource
from remuda.kube.schema import Schema

from .writing import POD, SELECTOR, TEMPLATE, complaints, created, given

TIME = "2026-01-02T03:04:05.000000Z"
CRD = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget"},
        "scope": "Namespaced",
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}
JOB = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
MANIFESTS: dict[tuple[str, str], dict[str, Any]] = {
    ("", "ConfigMap"): {"data": {"a": "b"}},
    ("", "Endpoints"): {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]},
    ("", "Event"): {"involvedObject": {"kind": "Pod", "name": "x", "namespace": "ns"}, "reason": "Started"},
    ("", "LimitRange"): {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}},
    ("", "Namespace"): {},
    ("", "Node"): {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {"capacity": {"cpu": 4}}},
    ("", "PersistentVolumeClaim"): {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    ("", "PersistentVolume"): {
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
    },
    ("", "Pod"): {"spec": POD},
    ("", "PodTemplate"): {"template": TEMPLATE},
    ("", "ReplicationController"): {"spec": {"template": TEMPLATE}},
    ("", "ResourceQuota"): {"spec": {"hard": {"pods": "3"}}},
    ("", "Secret"): {"stringData": {"a": "b"}},
    ("", "ServiceAccount"): {},
    ("", "Service"): {"spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}},
    ("apiregistration.k8s.io", "APIService"): {
        "metadata": {"name": "v1.x.io"},
        "spec": {"group": "x.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1},
    },
    ("apps", "ControllerRevision"): {"data": {"a": 1}, "revision": 1},
    ("apps", "DaemonSet"): {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    ("apps", "Deployment"): {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    ("apps", "ReplicaSet"): {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    ("apps", "StatefulSet"): {"spec": {"selector": SELECTOR, "template": TEMPLATE, "serviceName": "web"}},
    ("events.k8s.io", "Event"): {
        "regarding": {"kind": "Pod", "name": "x", "namespace": "ns"},
        "eventTime": TIME,
        "reportingController": "example.com/c",
        "reportingInstance": "c-1",
        "action": "Start",
        "reason": "Started",
        "type": "Normal",
    },
    ("batch", "CronJob"): {"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": JOB}}},
    ("batch", "Job"): {"spec": JOB},
    ("networking.k8s.io", "IngressClass"): {"spec": {"controller": "example.com/c"}},
    ("networking.k8s.io", "Ingress"): {
        "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}
    },
    ("networking.k8s.io", "NetworkPolicy"): {"spec": {"podSelector": {}, "egress": [{}]}},
    ("policy", "PodDisruptionBudget"): {"spec": {"minAvailable": "50%", "selector": SELECTOR}},
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): {"roleRef": {"kind": "ClusterRole", "name": "x"}},
    ("rbac.authorization.k8s.io", "ClusterRole"): {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
    ("rbac.authorization.k8s.io", "RoleBinding"): {
        "roleRef": {"kind": "Role", "name": "x"},
        "subjects": [{"kind": "User", "name": "jane"}],
    },
    ("rbac.authorization.k8s.io", "Role"): {"rules": [{"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]}]},
    ("storage.k8s.io", "CSIDriver"): {},
    ("storage.k8s.io", "CSINode"): {"spec": {"drivers": [{"name": "d", "nodeID": "n"}]}},
    ("storage.k8s.io", "StorageClass"): {"provisioner": "example.com/p"},
    ("storage.k8s.io", "VolumeAttachment"): {
        "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    },
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): {},
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): {
        "webhooks": [
            {
                "name": "a.b.c",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://x"},
            }
        ]
    },
    ("apiextensions.k8s.io", "CustomResourceDefinition"): CRD,
    ("scheduling.k8s.io", "PriorityClass"): {"value": 10},
    ("coordination.k8s.io", "Lease"): {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}},
    ("discovery.k8s.io", "EndpointSlice"): {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]},
}
STORED = [r for r in builtin_resources() if "list" in r.verbs]


def named(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"


@pytest.mark.parametrize("resource", STORED, ids=named)
def test_minimal_manifest_of_each_kind_is_accepted(resource: Resource) -> None:
    assert complaints(resource, **MANIFESTS[resource.group, resource.kind]) == []


@pytest.mark.parametrize("resource", STORED, ids=named)
def test_created_object_matches_its_schema(resource: Resource) -> None:
    obj = created(resource, **MANIFESTS[resource.group, resource.kind])
    assert misfits(resource.schema, obj, "") == []


@pytest.mark.parametrize("resource", STORED, ids=named)
def test_unchanged_update_is_accepted_as_a_no_op(resource: Resource) -> None:
    old = created(resource, **MANIFESTS[resource.group, resource.kind])
    new = copy.deepcopy(old)
    resource.behaviour.default(new)
    resource.behaviour.prepare_update(new, old)
    assert new == old
    assert resource.behaviour.validate_update(new, old) == []
    assert resource.behaviour.validate_status(new, old) == []


@pytest.mark.parametrize("resource", STORED, ids=named)
def test_printer_columns_have_a_cell_for_any_object(resource: Resource) -> None:
    bare = given(resource)
    full = created(resource, **MANIFESTS[resource.group, resource.kind])
    assert [c.name for c in resource.columns if c.format == "name"][:1] == ["Name"]
    for column in resource.columns:
        assert column.cell is not None
        for obj in (bare, full):
            assert isinstance(column.cell(obj), str | int | bool), column.name


@pytest.mark.parametrize("resource", STORED, ids=named)
def test_empty_object_is_validated_without_crashing(resource: Resource) -> None:
    obj = given(resource)
    resource.behaviour.default(obj)
    resource.behaviour.prepare_create(obj)
    assert isinstance(resource.behaviour.validate(obj), list)


@pytest.mark.parametrize("resource", STORED, ids=named)
def test_selectable_fields_and_scale_paths_exist(resource: Resource) -> None:
    if resource.to_storage is None:
        for path in resource.selectable.values():
            assert path_exists(resource.schema, path), path
    assert resource.selectable_zero.keys() <= resource.selectable.keys()
    if resource.scale is not None:
        assert path_exists(resource.schema, resource.scale.spec_replicas)
        assert path_exists(resource.schema, resource.scale.status_replicas)
    assert resource.has_status == ("status" in resource.schema.properties)


def test_resource_names_and_short_names_are_unique() -> None:
    seen = [(r.group, r.version, r.plural) for r in builtin_resources()]
    assert len(set(seen)) == len(seen)
    short = [name for r in builtin_resources() if r.group != "events.k8s.io" for name in r.short_names]
    assert len(set(short)) == len(short)
    assert {r.plural for r in builtin_resources() if "all" in r.categories} == {
        "pods", "services", "replicationcontrollers", "deployments", "replicasets", "statefulsets", "daemonsets",
        "jobs", "cronjobs",
    }  # fmt: skip


def test_importing_kinds_package_does_not_load_idl() -> None:
    code = "import sys, remuda.apiserver.kinds; print('remuda.apiserver.kinds.idl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def path_exists(schema: Schema, path: tuple[str, ...]) -> bool:
    for name in path:
        if name not in schema.properties:
            return False
        schema = schema.properties[name]
    return True


PYTHON_TYPES: dict[str, Any] = {"string": str, "integer": int, "boolean": bool, "number": (int, float)}


def misfits(schema: Schema, value: Any, path: str) -> list[str]:
    if value is None or schema.preserve_unknown or schema.int_or_string:
        return []
    if schema.type in PYTHON_TYPES:
        return [] if isinstance(value, PYTHON_TYPES[schema.type]) else [path]
    if schema.type == "array":
        assert schema.items is not None
        return [m for i, item in enumerate(value) for m in misfits(schema.items, item, f"{path}[{i}]")]
    found = []
    for name, item in value.items():
        part = schema.properties.get(name, schema.additional)
        found += [f"{path}.{name}"] if part is None else misfits(part, item, f"{path}.{name}")
    return found
