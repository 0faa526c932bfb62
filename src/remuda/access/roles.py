"""ClusterRoles for tenants: what a RoleBinding gives a user in one namespace.

`remuda-tenant` is for the namespace of a tenant's clusters and has no right to Secrets: plans, bootstrap scripts, keys
and kubeconfigs of clusters are Secrets of the same namespace, and RBAC cannot tell them from credentials.
`remuda-credentials` is for a second namespace, which holds the tenant's cloud credentials alone. `remuda-view` and
`remuda-edit` extend Kubernetes' roles `view` and `edit`. <Driver>Configs may contain passwords, so `remuda-view` leaves
them out. `remuda-drivers` is for a ClusterRoleBinding, and lets the commands show what a change would do. None of the
roles may write what controllers make: Machines, templates, Jobs and status.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from remuda.access.types import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DECLARED_CLUSTER,
    owned_by,
)
from remuda.capi import names as capi_names
from remuda.capi.external import DEFINITION
from remuda.kube.client import Client, Target
from remuda.kube.core import NAMESPACES
from remuda.kube.errors import AlreadyExists, Forbidden, NotFound
from remuda.kube.objects import ObjectMeta
from remuda.providers.shared import credentials, names
from remuda.providers.shared.types.machine import NODE_DRIVER
from remuda.runtime.steps import step

Json = dict[str, Any]

TENANT, CREDENTIALS, DRIVERS = "remuda-tenant", "remuda-credentials", "remuda-drivers"
VIEW, EDIT = "remuda-view", "remuda-edit"

INSTALL = step("access.install-roles", "creates or updates a ClusterRole that can be granted to users")

_READ = ["get", "list", "watch"]
_WRITE = ["create", "update", "patch", "delete"]
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
_ROLE_BINDINGS = Target(CLUSTER_ROLE.api_version, "rolebindings")
log = logging.getLogger(__name__)


def _rule(verbs: list[str], group: str, *resources: str) -> Json:
    return {"apiGroups": [group], "resources": list(resources), "verbs": verbs}


def _role(name: str, rules: list[Json], *extends: str) -> Json:
    labels = {"app.kubernetes.io/name": "remuda", **{_AGGREGATE + one: "true" for one in extends}}
    return {
        "apiVersion": CLUSTER_ROLE.api_version,
        "kind": CLUSTER_ROLE.name,
        "metadata": {"name": name, "labels": labels},
        "rules": rules,
    }


def cluster_roles() -> list[Json]:
    """Return the ClusterRoles, ready to be installed."""
    clusters = DECLARED_CLUSTER
    view = [
        _rule(_READ, clusters.group, clusters.plural),
        _rule(_READ, capi_names.GROUP, "*"),
        _rule(_READ, names.GROUP, "*"),
    ]
    edit = [
        _rule(_WRITE, clusters.group, clusters.plural),
        # Drivers add and remove kinds of these groups while everything runs.
        _rule([*_READ, *_WRITE], names.CONFIG_GROUP, "*"),
        _rule(_READ, names.MACHINE_GROUP, "*"),
    ]
    # What `kubectl describe` and the logs of Jobs need, and the namespace's own limits.
    progress = [
        _rule(_READ, "", "events", "pods", "pods/log", "resourcequotas"),
        _rule(_READ, "batch", "jobs"),
        _rule(["get"], "", "namespaces"),
    ]
    drivers = [
        _rule(_READ, NODE_DRIVER.group, NODE_DRIVER.plural),
        _rule(["get"], DEFINITION.group, DEFINITION.plural),
    ]
    return [
        _role(VIEW, view, "view"),
        _role(EDIT, edit, "edit", "admin"),
        _role(TENANT, [*view, *edit, *progress]),
        _role(CREDENTIALS, [_rule([*_READ, *_WRITE], "", "secrets")]),
        _role(DRIVERS, drivers),
    ]


def tenancy(user: ObjectMeta, namespace: str) -> list[tuple[Target, str, Json]]:
    """Return what makes a User the tenant of a namespace, each with its target and namespace, in order. The bindings
    are deleted with the User: who gets its name later inherits nothing."""
    found: list[tuple[Target, str, Json]] = []
    for place, role in ((namespace, TENANT), (credentials.namespace_for(namespace), CREDENTIALS)):
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}}
        found += [(NAMESPACES, "", space), (_ROLE_BINDINGS, place, _binding("RoleBinding", role, user))]
    return [*found, (CLUSTER_ROLE_BINDINGS, "", _binding(CLUSTER_ROLE_BINDING.name, DRIVERS, user))]


def _binding(kind: str, role: str, user: ObjectMeta) -> Json:
    return {
        "apiVersion": CLUSTER_ROLE.api_version,
        "kind": kind,
        "metadata": {"name": f"{role}:{user.name}", "ownerReferences": [msgspec.to_builtins(owned_by(user))]},
        "roleRef": {"apiGroup": CLUSTER_ROLE.group, "kind": CLUSTER_ROLE.name, "name": role},
        "subjects": [{"apiGroup": CLUSTER_ROLE.group, "kind": "User", "name": user.name}],
    }


async def install(client: Client) -> None:
    """Create the ClusterRoles, and update those that a former version has installed. A manager that may not do this
    logs a warning: its manifest has them."""
    for role in cluster_roles():
        name = role["metadata"]["name"]
        try:
            await _install_one(client, name, role)
        except AlreadyExists:
            continue  # another replica was faster
        except Forbidden as error:
            log.warning("cannot install ClusterRole %s: %s; apply the output of `remuda manifest`", name, error)


async def _install_one(client: Client, name: str, role: Json) -> None:
    try:
        found = msgspec.json.decode(await client.get(CLUSTER_ROLES, "", name))
    except NotFound:
        async with INSTALL:
            await client.create(CLUSTER_ROLES, "", role)
        return
    labels = found["metadata"].get("labels") or {}
    if found.get("rules") != role["rules"] or not role["metadata"]["labels"].items() <= labels.items():
        async with INSTALL:
            await client.patch(
                CLUSTER_ROLES, "", name, {"metadata": {"labels": role["metadata"]["labels"]}, "rules": role["rules"]}
            )
