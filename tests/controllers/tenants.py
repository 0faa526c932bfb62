"""Users with rights of their own, for tests that try what such a user must not get."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from remuda.kube import kubeconfig
from remuda.kube.client import Client
from remuda.kube.core import ROLE_BINDINGS, ROLES
from remuda.kube.http import HttpClient
from remuda.kube.kubeconfig import Impersonation
from tests.controllers.engine import Engine, Json

RBAC = "rbac.authorization.k8s.io"
EVERYTHING: Json = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


def new_name() -> str:
    return f"rider-{secrets.token_hex(3)}"


async def grant(engine: Engine, namespace: str, user: str, name: str, rules: Sequence[Json]) -> None:
    """Give a user these rights in a namespace, by a Role and a RoleBinding of that name."""
    await engine.create(ROLES, namespace, {"metadata": {"name": name}, "rules": list(rules)})
    subject = {"apiGroup": RBAC, "kind": "User", "name": user}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    await engine.create(ROLE_BINDINGS, namespace, binding)


async def revoke(engine: Engine, namespace: str, name: str) -> None:
    await engine.delete(ROLE_BINDINGS, namespace, name)
    await engine.delete(ROLES, namespace, name)


@asynccontextmanager
async def acting_as(engine: Engine, user: str) -> AsyncIterator[Client]:
    access = msgspec.structs.replace(kubeconfig.load(engine.kubeconfig), impersonate=Impersonation(user=user))
    client = HttpClient(access)
    try:
        yield client
    finally:
        await client.close()
