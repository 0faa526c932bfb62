"""A user who may write everything of a namespace uses no driver that places hosts on the manager's own machine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remuda.kube.client import Target
from remuda.kube.errors import StatusError
from remuda.kube.objects import Kind
from remuda.providers import setup as providers
from remuda.providers.machine import definitions, options
from remuda.providers.shared.drivers.process import Process
from remuda.providers.shared.restriction import ALLOW_ALL_USERS
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.providers.shared.types.machine import NODE_DRIVER, config_kind
from remuda.provisioning import setup as provisioning
from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import Engine, Json, eventually
from tests.controllers.tenants import EVERYTHING, acting_as, grant, new_name

CONFIG = config_kind("process")
INFRASTRUCTURE = {"spec": {"infrastructure": {"driver": "process"}}}


def typed(kind: Kind[Any], name: str, **content: object) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, **content}


def declared(name: str) -> Json:
    pool = {
        "name": "servers",
        "quantity": 1,
        "etcdRole": True,
        "controlPlaneRole": True,
        "machineConfigRef": {"kind": "ProcessConfig", "name": "small"},
    }
    return typed(CLUSTER, name, spec={"kubernetesVersion": "v1.36.4+k3s1", "rkeConfig": {"machinePools": [pool]}})


async def test_local_driver_is_denied_to_user_until_administrator_allows_all_users(engine: Engine) -> None:
    model = await asyncio.to_thread(options.of_driver, Process)
    await engine.install([*providers.definitions(), *provisioning.definitions(), *definitions.of_driver(model)])
    namespace, user = await engine.namespace(), new_name()
    await grant(engine, namespace, user, "all", [EVERYTHING])
    made = await engine.get(NODE_DRIVER.target, "", "process") is None
    if made:
        await engine.create(NODE_DRIVER.target, "", typed(NODE_DRIVER, "process", spec={"active": False}))
    async with (
        engine.running(namespace, lambda manager: manager.caches.of(NODE_DRIVER) and None),
        acting_as(engine, user) as client,
    ):

        async def is_refused(target: Target, obj: Json) -> bool:
            try:
                await client.create(target, namespace, obj, dry_run=True)
            except StatusError as error:
                return error.code == 403 and "only administrators may use it" in error.message
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
            if made:  # others expect a driver that is there to be active
                await engine.delete(NODE_DRIVER.target, "", "process")
