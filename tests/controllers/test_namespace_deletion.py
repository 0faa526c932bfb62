"""Deleting a namespace that holds machines: their servers are removed, counted where they are, and nothing is left.

Jobs and drivers are real. The manager looks after all namespaces, because the Jobs run in its own.
"""

from __future__ import annotations

import base64
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from remuda.capi.inventory import NAMESPACE as OURS
from remuda.capi.types import CLUSTER, MACHINE
from remuda.jobs.runner import JobRunner
from remuda.kube.core import JOBS, NAMESPACES, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.objects import Kind
from remuda.providers.bootstrap.definitions import definitions
from remuda.providers.infrastructure import controller as infrastructure
from remuda.providers.machine import secret_guard, setup
from remuda.providers.shared import names
from remuda.providers.shared.credentials import namespace_for
from remuda.providers.shared.drivers.simcloud import FileCloud
from remuda.providers.shared.drivers.spi import TAG_CLUSTER
from remuda.providers.shared.jobs.budget import Rules
from remuda.providers.shared.jobs.manifests import REMOVAL_OF
from remuda.providers.shared.jobs.protection import FINALIZER
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.providers.shared.types.machine import NODE_DRIVER, DriverMachine, machine_kind
from remuda.runtime.manager import Manager
from tests.controllers.engine import Engine, Json, eventually, is_true
from tests.controllers.jobs import Runner
from tests.lab.drivers import processes_below

SIM, PROCESS = machine_kind("sim"), machine_kind("process")
CREDENTIAL = "cloud"
_SCRIPT = b"#!/bin/sh\nnohup sleep 86400 >/dev/null 2>&1 &\n"


class Tenant:
    """A namespace with a Cluster, its machines, and the credential that they are made with."""

    def __init__(self, engine: Engine, namespace: str, directory: Path) -> None:
        self.engine = engine
        self.namespace = namespace
        self.directory = directory
        self.jobs = Runner(engine, directory)
        self.cloud = FileCloud(self.jobs.settings.hosts / "sim" / "default.jsonl")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Manager]:
        def add(manager: Manager) -> None:
            rules = Rules(first_seconds=0.2, most_seconds=0.2)
            settings = MachineSettings(rules=rules, job_key=self.jobs.settings.key)
            setup.add(manager, settings)
            infrastructure.add(manager, settings)
            JobRunner(manager, self.jobs.settings)

        async with self.engine.running("", add) as manager:
            for driver in ("sim", "process"):
                await self._register(driver)
            yield manager

    async def _register(self, driver: str) -> None:
        spec = {"url": "local://", "builtin": True, "active": True}
        if await self.engine.get(NODE_DRIVER.target, "", driver) is None:
            obj = {"apiVersion": NODE_DRIVER.api_version, "kind": NODE_DRIVER.name, "metadata": {"name": driver}}
            await self.engine.create(NODE_DRIVER.target, "", {**obj, "spec": spec})
        else:  # of another test, which may have left it switched off
            await self.engine.patch(NODE_DRIVER.target, "", driver, {"spec": spec})
        await self.engine.until(NODE_DRIVER.target, "", driver, lambda found: is_true(found, "Active"))

    async def cluster(self, **infrastructure: Any) -> None:
        await self._create(RKE_CLUSTER, "c", {"infrastructure": infrastructure} if infrastructure else {})
        ref = {"apiGroup": names.GROUP, "kind": RKE_CLUSTER.name, "name": "c"}
        cluster = await self._create(CLUSTER, "c", {"infrastructureRef": ref})
        await self.engine.patch(RKE_CLUSTER.target, self.namespace, "c", {"metadata": _owned_by(CLUSTER, cluster)})
        status = {"initialization": {"infrastructureProvisioned": True}}
        await self.engine.status(CLUSTER.target, self.namespace, "c", status)
        await self.secret(self.namespace, "bootstrap", value=_SCRIPT, format=b"script")

    async def secret(self, namespace: str, name: str, **data: bytes) -> None:
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}
        await self.engine.create(SECRETS, namespace, obj)

    async def machine(self, kind: Kind[DriverMachine], name: str, credential: str = "", **options: Any) -> Json:
        ref = {"apiGroup": kind.group, "kind": kind.name, "name": name}
        spec = {"clusterName": "c", "bootstrap": {"dataSecretName": "bootstrap"}, "infrastructureRef": ref}
        owner = await self._create(MACHINE, name, spec)
        common = {"cloudCredentialSecretName": credential} if credential else {}
        return await self._create(kind, name, {**options, "common": common}, **_owned_by(MACHINE, owner))

    async def _create(self, kind: Kind[Any], name: str, spec: Json, **metadata: Any) -> Json:
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name, **metadata}, "spec": spec}
        return await self.engine.create(kind.target, self.namespace, body)

    async def ready(self, kind: Kind[Any], *made: str) -> None:
        for name in made:
            await self.engine.until(kind.target, self.namespace, name, lambda obj: is_true(obj, "Ready"))

    async def servers(self) -> int:
        """So many simulated servers there are for this namespace."""
        return len([one for one in await self.cloud.servers() if one.tags[TAG_CLUSTER] == f"{self.namespace}/c"])

    async def protected(self, *secrets: str) -> None:
        for name in secrets:
            await self.engine.until(
                SECRETS, self.namespace, name, lambda obj: obj["metadata"].get("finalizers") == [FINALIZER]
            )

    async def delete_namespace(self, *more: str) -> None:
        for name in (self.namespace, *more):
            await self.engine.delete(NAMESPACES, "", name)

    async def gone(self, *more: str) -> None:
        for name in (self.namespace, *more):
            await self.engine.gone(NAMESPACES, "", name)

    async def left_elsewhere(self) -> list[str]:
        """Return the objects of removals that are left in the manager's own namespace."""
        found: list[str] = []
        for target in (JOBS, SECRETS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS):
            for obj in await self.engine.list(target, OURS, REMOVAL_OF):
                if obj["metadata"]["annotations"][REMOVAL_OF].startswith(f"{self.namespace}/"):
                    found.append(f"{target.plural} {obj['metadata']['name']}")
        return found

    async def nothing_elsewhere(self) -> None:
        async def holds() -> bool:
            return not await self.left_elsewhere()

        await eventually(holds)


def _owned_by(kind: Kind[Any], obj: Json) -> Json:
    metadata = obj["metadata"]
    named = {"name": metadata["name"], "uid": metadata["uid"]}
    return {"ownerReferences": [{"apiVersion": kind.api_version, "kind": kind.name, **named, "controller": True}]}


@pytest_asyncio.fixture(loop_scope="session")
async def tenant(engine: Engine, tmp_path: Path) -> AsyncIterator[Tenant]:
    await engine.install([*definitions(), *setup.definitions()])
    yield Tenant(engine, await engine.namespace(), tmp_path)
    for pid in processes_below(tmp_path):
        os.kill(pid, signal.SIGKILL)


async def test_servers_of_a_deleted_namespace_are_removed(tenant: Tenant) -> None:
    """With a credential in the same namespace, and one in the tenant's namespace for credentials, deleted as well."""
    other = namespace_for(tenant.namespace)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}}
    await tenant.engine.create(NAMESPACES, "", namespace)
    await tenant.secret(tenant.namespace, CREDENTIAL, token=b"good")
    await tenant.secret(other, CREDENTIAL, token=b"good")
    async with tenant.running():
        await tenant.cluster()
        await tenant.machine(SIM, "m-1", CREDENTIAL)
        await tenant.machine(SIM, "m-2", f"{other}:{CREDENTIAL}", removeFailures=1)
        await tenant.ready(SIM, "m-1", "m-2")
        assert await tenant.servers() == 2
        await tenant.delete_namespace(other)
        await tenant.gone(other)
        assert await tenant.servers() == 0
        await tenant.nothing_elsewhere()


async def test_deleting_namespace_removes_server_under_creation(tenant: Tenant) -> None:
    async with tenant.running():
        await tenant.cluster()
        await tenant.machine(SIM, "m-1", neverBoots=True)

        async def asked_for() -> bool:
            return await tenant.servers() == 1

        await eventually(asked_for)
        await tenant.delete_namespace()
        await tenant.gone()
        assert await tenant.servers() == 0
        await tenant.nothing_elsewhere()


async def test_processes_of_a_deleted_namespace_are_ended(tenant: Tenant) -> None:
    """A host, and what its cluster shares: a load balancer."""
    async with tenant.running():
        await tenant.cluster(driver="process")
        await tenant.ready(RKE_CLUSTER, "c")
        shared = _hosted(tenant)
        assert shared
        await tenant.machine(PROCESS, "m-1")
        await tenant.ready(PROCESS, "m-1")
        assert len(_hosted(tenant)) > len(shared)
        await tenant.delete_namespace()
        await tenant.gone()
        assert _hosted(tenant) == []
        await tenant.nothing_elsewhere()


def _hosted(tenant: Tenant) -> Sequence[int]:
    return processes_below(tenant.jobs.settings.hosts)


async def test_user_can_replace_a_credential_in_use(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_guard, "_MISSING_SECONDS", 0.1)
    await tenant.secret(tenant.namespace, CREDENTIAL, token=b"good")
    async with tenant.running():
        await tenant.cluster()
        await tenant.machine(SIM, "m-1", CREDENTIAL)
        await tenant.ready(SIM, "m-1")
        await tenant.protected(CREDENTIAL)
        await tenant.engine.delete(SECRETS, tenant.namespace, CREDENTIAL)
        await tenant.engine.gone(SECRETS, tenant.namespace, CREDENTIAL)
        await tenant.secret(tenant.namespace, CREDENTIAL, token=b"better")
        await tenant.protected(CREDENTIAL)


async def test_state_secret_of_a_machine_removed_by_force_is_released(tenant: Tenant) -> None:
    async with tenant.running():
        await tenant.cluster()
        await tenant.machine(SIM, "m-1")
        await tenant.ready(SIM, "m-1")
        state = names.state_secret("m-1")
        await tenant.protected(state)
    await tenant.engine.patch(SIM.target, tenant.namespace, "m-1", {"metadata": {"finalizers": None}})
    await tenant.engine.delete(SIM.target, tenant.namespace, "m-1")
    async with tenant.running():
        await tenant.engine.gone(SECRETS, tenant.namespace, state)


async def test_secrets_of_machines_from_an_earlier_version_are_protected(tenant: Tenant) -> None:
    await tenant.secret(tenant.namespace, CREDENTIAL, token=b"good")
    kept = (names.state_secret("m-1"), CREDENTIAL)
    async with tenant.running():
        await tenant.cluster()
        await tenant.machine(SIM, "m-1", CREDENTIAL)
        await tenant.ready(SIM, "m-1")
    for name in kept:
        await tenant.engine.patch(SECRETS, tenant.namespace, name, {"metadata": {"finalizers": None, "labels": None}})
    async with tenant.running():
        await tenant.protected(*kept)
        await tenant.delete_namespace()
        await tenant.gone()
        assert await tenant.servers() == 0
