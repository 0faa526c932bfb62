"""Setup of users, tokens, grants and kubeconfigs in a manager."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

from remuda.access import admission, grants, kubeconfigs, quotas, system_users, users
from remuda.access import definitions as kinds
from remuda.access.clusters import Clusters
from remuda.access.grants import CreatorController, GrantController
from remuda.access.kubeconfigs import KubeconfigController
from remuda.access.system_users import SystemUserController
from remuda.access.tokens import USERS
from remuda.access.types import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, TOKEN, Quota
from remuda.access.users import TokenController
from remuda.kube.admission import AdmissionRegistration
from remuda.kube.client import Client
from remuda.kube.errors import AlreadyExists, ignore_not_found
from remuda.providers.shared.manager_address import Site
from remuda.runtime.manager import Manager
from remuda.runtime.remote import RemoteClusters
from remuda.runtime.steps import step
from remuda.runtime.webhooks import Webhook

CONTROLLERS = (users.NAME, grants.NAME, grants.CREATORS, kubeconfigs.NAME, system_users.NAME)

SERVE_USERS = step("access.let-users-in", "lets every User create tokens for itself")

_SELF_SERVICE = "remuda:users"
_API_VERSION = "rbac.authorization.k8s.io/v1"
_GROUP = "rbac.authorization.k8s.io"


def definitions() -> list[dict[str, Any]]:
    return kinds.definitions()


def admission_functions(user_quota: Quota = quotas.NO_LIMITS) -> list[AdmissionRegistration]:
    """Return what an engine registers. `user_quota`: limits of users that have none of their own."""
    return [*admission.FUNCTIONS, *quotas.registrations(user_quota)]


def webhooks(user_quota: Quota = quotas.NO_LIMITS) -> list[Webhook]:
    """Return the same for an API server elsewhere."""
    return [*admission.WEBHOOKS, *quotas.webhooks(user_quota)]


def add(
    manager: Manager,
    remote: RemoteClusters,
    clusters: Clusters,
    site: Site,
    *,
    only: Collection[str] = CONTROLLERS,
) -> None:
    """Add the controllers to a manager that has not started yet and watches all namespaces."""
    if users.NAME in only:
        TokenController(manager)
    if grants.NAME in only:
        GrantController(manager, remote, clusters)
    if grants.CREATORS in only:
        CreatorController(manager)
    if kubeconfigs.NAME in only:
        KubeconfigController(manager, clusters, site)
    if system_users.NAME in only:
        SystemUserController(manager, clusters.planes)


async def allow_own_tokens(client: Client) -> None:
    """Let every User create tokens for itself; admission denies tokens for others. Only for the embedded engine, where
    admission is always active."""
    rule = {"apiGroups": [TOKEN.group], "resources": [TOKEN.plural], "verbs": ["create"]}
    role = {
        "apiVersion": _API_VERSION,
        "kind": "ClusterRole",
        "metadata": {"name": _SELF_SERVICE},
        "rules": [rule],
    }
    binding = {
        "apiVersion": _API_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _SELF_SERVICE},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": _SELF_SERVICE},
        "subjects": [{"apiGroup": _GROUP, "kind": "Group", "name": USERS}],
    }
    for target, obj in ((CLUSTER_ROLES, role), (CLUSTER_ROLE_BINDINGS, binding)):
        with ignore_not_found():
            await client.get(target, "", _SELF_SERVICE)
            continue  # an administrator may have changed it on purpose
        with contextlib.suppress(AlreadyExists):
            async with SERVE_USERS:
                await client.create(target, "", obj)
