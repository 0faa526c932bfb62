"""One Cluster with machines for a test of the bootstrap provider: core and bootstrap controllers are real, the test
plays the infrastructure of machines and the hosts themselves, which speak to the engine over its wire.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from remuda.capi import names as capi_names
from remuda.capi.setup import add_controllers
from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube import kubeconfig
from remuda.kube.client import Target
from remuda.kube.core import SECRETS
from remuda.kube.http import HttpClient
from remuda.kube.objects import Key
from remuda.providers.bootstrap import setup
from remuda.providers.bootstrap.definitions import definitions
from remuda.providers.bootstrap.registration import ConnectionInfo, RegistrationService
from remuda.providers.bootstrap.setup import BootstrapSettings
from remuda.providers.controlplane.definitions import definitions as control_plane_definitions
from remuda.providers.infrastructure import controller as infrastructure
from remuda.providers.shared import names
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.runtime.manager import Manager
from tests.controllers.engine import PATIENCE_SECONDS, Engine, Json, decode, is_true
from tests.controllers.providers import ProviderKind

EVENTS = Target("v1", "events")
TEST_MACHINE = ProviderKind(names.MACHINE_GROUP, "TestMachine", "v1beta2")  # a driver's machine, played by the test
CLOUD_MACHINE = ProviderKind("infrastructure.cluster.x-k8s.io", "CloudMachine", "v1beta2")  # somebody else's

ROLES = {names.WORKER_ROLE: "true", "pool": "a"}


class BootstrapHarness:
    def __init__(self, engine: Engine, namespace: str) -> None:
        self.engine = engine
        self.namespace = namespace
        access = kubeconfig.load(engine.kubeconfig)
        assert isinstance(access.ca, bytes)
        self.site = Site(server_url=access.server.rstrip("/"), ca_pem=access.ca)
        self.settings = BootstrapSettings()
        self.registration: RegistrationService
        self.manager: Manager

    @classmethod
    async def create(cls, engine: Engine) -> BootstrapHarness:
        machines = [TEST_MACHINE.definition(), CLOUD_MACHINE.definition()]
        await engine.install([*definitions(), *control_plane_definitions(), *machines])
        return cls(engine, await engine.namespace())

    @asynccontextmanager
    async def running(self, *, site: Site | None = None, core: bool = True) -> AsyncIterator[Manager]:
        def add(manager: Manager) -> None:
            if core:
                add_controllers(manager, only=("cluster", "machine"))
            infrastructure.add(manager)
            self.registration = setup.add(manager, site or self.site, settings=self.settings)

        async with self.engine.running(self.namespace, add) as manager:
            self.manager = manager
            yield manager

    async def settled(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.manager.idle:
                await asyncio.sleep(0.01)

    # what a user applies

    async def infrastructure(self, name: str = "c") -> Json:
        return await self.engine.create(RKE_CLUSTER.target, self.namespace, _object(RKE_CLUSTER, name, {}))

    async def cluster(self, name: str = "c", *, infrastructure: bool = True) -> Json:
        if infrastructure:
            await self.infrastructure(name)
        spec: Json = {"infrastructureRef": _reference(names.GROUP, "RKECluster", name)}
        return await self.engine.create(CLUSTER.target, self.namespace, _object(CLUSTER, name, spec))

    async def machine(
        self,
        name: str = "m",
        *,
        infrastructure: ProviderKind = TEST_MACHINE,
        labels: Mapping[str, str] = ROLES,
        userdata: str = "",
        cluster: str = "c",
    ) -> Json:
        labels = {**labels, capi_names.CLUSTER_NAME: cluster}
        spec: Json = {"userdata": {"inlineUserdata": userdata}} if userdata else {}
        await self.engine.create(
            RKE_BOOTSTRAP.target, self.namespace, _object(RKE_BOOTSTRAP, name, spec, labels=dict(labels))
        )
        version = infrastructure.target.api_version
        await self.engine.create(
            infrastructure.target,
            self.namespace,
            {"apiVersion": version, "kind": infrastructure.name, "metadata": {"name": name}, "spec": {}},
        )
        references = {
            "clusterName": cluster,
            "bootstrap": {"configRef": _reference(names.GROUP, "RKEBootstrap", name)},
            "infrastructureRef": infrastructure.reference(name),
        }
        return await self.engine.create(
            MACHINE.target, self.namespace, _object(MACHINE, name, references, labels=dict(labels))
        )

    # what is there

    async def bootstrapped(self, name: str = "m") -> Json:
        """The RKEBootstrap, when its data is there."""
        return await self.engine.until(
            RKE_BOOTSTRAP.target, self.namespace, name, lambda obj: is_true(obj, "Ready"), seconds=PATIENCE_SECONDS
        )

    async def secret(self, name: str) -> Json:
        found = await self.engine.get(SECRETS, self.namespace, name)
        assert found is not None, f"there is no Secret {name}"
        return found

    async def plan(self, name: str = "m") -> Json:
        return await self.secret(names.plan_secret(name))

    async def data(self, name: str = "m") -> str:
        """What the server is given to run."""
        return text(await self.secret(names.bootstrap_secret(name)), "value")

    async def token(self, name: str = "m") -> str:
        return token_in(await self.data(name))

    async def until_event(self, reason: str, about: str) -> Json:
        """Return the event as soon as there is one with this reason."""
        found = await self.engine.when(
            EVENTS,
            self.namespace,
            lambda events: next(
                (one for one in events if one["reason"] == reason and one["involvedObject"]["name"] == about), None
            ),
        )
        return found  # type: ignore[no-any-return]

    # what a host does

    async def connect(self, token: str, id: str = "host-1", **headers: str) -> ConnectionInfo:
        said = {f"x-cattle-{name.replace('_', '-')}": value for name, value in headers.items()}
        return await self.registration.connect(token, {"x-cattle-id": id, **said})

    @asynccontextmanager
    async def host(self, info: ConnectionInfo) -> AsyncIterator[HttpClient]:
        """A client with nothing but the kubeconfig a host was given."""
        client = HttpClient(kubeconfig.parse(info.kube_config.encode(), origin="the host's"))
        try:
            yield client
        finally:
            await client.close()

    @property
    def key(self) -> Key:
        return Key(self.namespace, "m")


def token_in(script: str) -> str:
    line = next(line for line in script.splitlines() if "CATTLE_TOKEN=" in line)
    return line.partition("=")[2].strip("'\"")


def text(secret: Json, key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def read(value: bytes) -> Json:
    return decode(value)


def _reference(group: str, kind: str, name: str) -> Json:
    return {"apiGroup": group, "kind": kind, "name": name}


def _object(kind: Any, name: str, spec: Json, labels: Json | None = None) -> Json:
    metadata: Json = {"name": name} | ({"labels": labels} if labels else {})
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
