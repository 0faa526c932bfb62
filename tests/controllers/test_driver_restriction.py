"""A user who may write everything of a namespace uses no driver that places hosts on the manager's own machine."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from remuda.kube import kubeconfig
from remuda.kube.client import Client, Target
from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient
from remuda.kube.kubeconfig import Impersonation
from remuda.kube.objects import Kind
from remuda.providers import setup as providers
from remuda.providers.infrastructure.types import RKE_CLUSTER
from remuda.providers.machine import definitions, options
from remuda.providers.machine.drivers.process import Process
from remuda.providers.machine.restriction import ALLOW_ALL_USERS
from remuda.providers.machine.types import NODE_DRIVER, config_kind
from remuda.provisioning import setup as provisioning
from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import Engine, Json, eventually

CONFIG = config_kind("process")
ROLES = Target("rbac.authorization.k8s.io/v1", "roles")
BINDINGS = Target("rbac.authorization.k8s.io/v1", "rolebindings")
RBAC = "rbac.authorization.k8s.io"
INFRASTRUCTURE = {"spec": {"infrastructure": {"driver": "process"}}}


def typed(kind: Kind[Any], name: str, **content: object) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, **content}


def named(name: str, **content: object) -> Json:
    return {"metadata": {"name": name}, **content}


def declared(name: str) -> Json:
    pool = {
        "name": "servers",
        "quantity": 1,
        "etcdRole": True,
        "controlPlaneRole": True,
        "machineConfigRef": {"kind": "ProcessConfig", "name": "small"},
    }
    return typed(CLUSTER, name, spec={"kubernetesVersion": "v1.36.4+k3s1", "rkeConfig": {"machinePools": [pool]}})


@asynccontextmanager
async def user(engine: Engine, namespace: str) -> AsyncIterator[Client]:
    """One who may do everything in the namespace."""
    name = f"rider-{secrets.token_hex(3)}"
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    await engine.create(ROLES, namespace, named("all", rules=[rule]))
    subject = {"apiGroup": RBAC, "kind": "User", "name": name}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": "all"}
    await engine.create(BINDINGS, namespace, named("all", roleRef=reference, subjects=[subject]))
    access = msgspec.structs.replace(kubeconfig.load(engine.kubeconfig), impersonate=Impersonation(user=name))
    client = HttpClient(access)
    try:
        yield client
    finally:
        await client.close()


async def test_user_is_refused_until_an_administrator_opens_the_driver(engine: Engine) -> None:
    model = await asyncio.to_thread(options.of_driver, Process)
    await engine.install([*providers.definitions(), *provisioning.definitions(), *definitions.of_driver(model)])
    namespace = await engine.namespace()
    if await engine.get(NODE_DRIVER.target, "", "process") is None:
        await engine.create(NODE_DRIVER.target, "", typed(NODE_DRIVER, "process", spec={"active": False}))
    async with (
        engine.running(namespace, lambda manager: manager.caches.of(NODE_DRIVER) and None),
        user(engine, namespace) as client,
    ):

        async def is_refused(target: Target, obj: Json) -> bool:
            try:
                await client.create(target, namespace, obj, dry_run=True)
            except StatusError as error:
                return error.code == 403 and "only administrators (cluster-admin) may use it" in error.message
            return False

        await eventually(lambda: is_refused(CONFIG.target, typed(CONFIG, "small")))
        assert await is_refused(RKE_CLUSTER.target, typed(RKE_CLUSTER, "mine", **INFRASTRUCTURE))
        assert await is_refused(CLUSTER.target, declared("mine"))
        # An administrator may, and what is there can be labelled by the user but not changed.
        await engine.create(CONFIG.target, namespace, typed(CONFIG, "small"))
        await client.patch(CONFIG.target, namespace, "small", {"metadata": {"labels": {"a": "b"}}})
        with pytest.raises(StatusError, match="only administrators"):
            await client.patch(CONFIG.target, namespace, "small", {"timeoutSeconds": 7})
        await client.create(RKE_CLUSTER.target, namespace, typed(RKE_CLUSTER, "bare", spec={}))

        opened = {"metadata": {"annotations": {ALLOW_ALL_USERS: "true"}}}
        await engine.patch(NODE_DRIVER.target, "", "process", opened)

        async def is_open() -> bool:
            return not await is_refused(RKE_CLUSTER.target, typed(RKE_CLUSTER, "mine", **INFRASTRUCTURE))

        try:
            await eventually(is_open)
            await client.create(RKE_CLUSTER.target, namespace, typed(RKE_CLUSTER, "mine", **INFRASTRUCTURE))
            await client.patch(CONFIG.target, namespace, "small", {"timeoutSeconds": 7})
        finally:
            closed = {"metadata": {"annotations": {ALLOW_ALL_USERS: None}}}
            await engine.patch(NODE_DRIVER.target, "", "process", closed)
