"""RBAC objects of a grant on both sides.

On the management plane a grant is the permission to get one management Cluster, which permits reaching it; in the
cluster it is a ClusterRoleBinding. Pure functions, except `ensure` and `remove`, which write and delete those objects.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from remuda.access.types import (
    MANAGEMENT_CLUSTER,
    ClusterRoleTemplateBinding,
    role_of,
)
from remuda.kube.client import Client, Target
from remuda.kube.definitions import OWNER, OWNERSHIP_LABEL
from remuda.kube.errors import AlreadyExists, NotFound, ignore_not_found
from remuda.kube.objects import OwnerReference
from remuda.runtime.steps import Step

Json = dict[str, Any]

_API_VERSION = "rbac.authorization.k8s.io/v1"
_GROUP = "rbac.authorization.k8s.io"
_LABELS = {OWNERSHIP_LABEL: OWNER}
_COMPARED = ("roleRef", "subjects", "rules")  # fields that decide whether an object is up to date


def reaching_role(cluster: str) -> str:
    """Return the name of the ClusterRole that permits reaching a cluster, on the management plane."""
    return f"remuda:cluster:{cluster}"


def binding_name(grant: ClusterRoleTemplateBinding) -> str:
    """Return the name of the binding on the management plane, unique over the grants of all clusters."""
    return f"remuda:grant:{grant.metadata.namespace}:{grant.metadata.name}"


def downstream_name(grant: ClusterRoleTemplateBinding) -> str:
    return f"remuda:grant:{grant.metadata.name}"


def role(cluster: str, owner: OwnerReference) -> Json:
    rule = {
        "apiGroups": [MANAGEMENT_CLUSTER.group],
        "resources": [MANAGEMENT_CLUSTER.plural],
        "resourceNames": [cluster],
        "verbs": ["get"],
    }
    metadata = {
        "name": reaching_role(cluster),
        "labels": _LABELS,
        "ownerReferences": [msgspec.to_builtins(owner)],
    }
    return {"apiVersion": _API_VERSION, "kind": "ClusterRole", "metadata": metadata, "rules": [rule]}


def binding(grant: ClusterRoleTemplateBinding) -> Json:
    return _binding(binding_name(grant), grant, reaching_role(grant.cluster_name))


def downstream(grant: ClusterRoleTemplateBinding) -> Json:
    return _binding(downstream_name(grant), grant, role_of(grant))


def _binding(name: str, grant: ClusterRoleTemplateBinding, role: str) -> Json:
    kind, who = ("User", grant.user_name) if grant.user_name else ("Group", grant.group_name)
    return {
        "apiVersion": _API_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": _LABELS},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _GROUP, "kind": kind, "name": who}],
    }


async def ensure(client: Client, target: Target, wanted: Json, step: Step) -> None:
    """Create an object or bring it up to date. A binding's role is immutable, so an outdated binding is replaced."""
    name = wanted["metadata"]["name"]
    present = await find(client, target, name)
    if present is not None:
        if all(present.get(part) == wanted.get(part) for part in _COMPARED):
            return
        await remove(client, target, name, step)
    with contextlib.suppress(AlreadyExists):
        async with step:
            await client.create(target, "", wanted)


async def remove(client: Client, target: Target, name: str, step: Step) -> None:
    """Delete an object if it exists."""
    with ignore_not_found():
        async with step:
            await client.delete(target, "", name)


async def find(client: Client, target: Target, name: str) -> Json | None:
    try:
        found: Json = msgspec.json.decode(await client.get(target, "", name))
    except NotFound:
        return None
    return found
