"""One cluster for a test of access: a control plane that only says who it is, whose workload cluster is the
engine itself. The test connects it and disconnects it.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Self

from remuda.access import setup
from remuda.access.clusters import Clusters
from remuda.access.tokens import NewToken, Tokens, mint
from remuda.access.types import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, GRANT, MANAGEMENT_CLUSTER, TOKEN, USER
from remuda.capi import names as capi_names
from remuda.kube import clock
from remuda.kube.client import Client
from remuda.kube.core import NAMESPACES, SECRETS
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key, Kind
from remuda.providers.controlplane.definitions import definitions as control_plane_definitions
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.provisioning.definitions import definitions as provisioning_definitions
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import Retryable
from remuda.runtime.remote import RemoteClusters, RemoteSettings
from tests.controllers.control_plane_harness import UnclosedClient
from tests.controllers.engine import PATIENCE_SECONDS, Engine, Json, condition

SITE = Site(server_url="https://ranch.example:6443", ca_pem=b"-- the ranch's --\n")


class AccessHarness:
    """One cluster `c`, with an id of its own."""

    def __init__(self, engine: Engine, namespace: str, id: str) -> None:
        self.engine = engine
        self.namespace = namespace
        self.id = id
        self.cluster = Key(namespace, "c")
        self.reachable = True
        self.site = SITE
        self.manager: Manager
        self.tokens: Tokens
        self._remote: RemoteClusters

    @classmethod
    async def create(cls, engine: Engine) -> Self:
        found = [*control_plane_definitions(), *provisioning_definitions(), *setup.definitions()]
        await engine.install(found)
        return cls(engine, await engine.namespace(), f"c-m-{secrets.token_hex(4)}")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Manager]:
        async with self.engine.running("", self._add) as manager:
            self.manager = manager
            self._remote.want(self.cluster)
            yield manager

    def _add(self, manager: Manager) -> None:
        quick = RemoteSettings(
            probe_seconds=0.1,
            answer_seconds=PATIENCE_SECONDS,
            connect_seconds=PATIENCE_SECONDS,
            probes=1,
            retry_seconds=0.1,
        )
        self._remote = RemoteClusters(self._dial, settings=quick)
        manager.at_end(self._remote.close)
        setup.add(manager, self._remote, Clusters(manager.caches), self.site)
        self.tokens = Tokens(manager.caches)

    async def _dial(self, cluster: Key) -> Client:
        if not self.reachable or cluster != self.cluster:
            raise Retryable("the workload cluster is disconnected")
        return UnclosedClient(self.engine.client)  # type: ignore[return-value]

    def disconnect(self) -> None:
        self.reachable = False
        self._remote.nudge(self.cluster)

    def reconnect(self) -> None:
        self.reachable = True
        self._remote.nudge(self.cluster)

    async def settled(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.manager.idle:
                await asyncio.sleep(0.01)

    # what is made

    async def create_cluster(self, **annotations: str) -> None:
        """As provisioning makes it."""
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.id}}
        await self.engine.create(NAMESPACES, "", space)
        await self.create_control_plane(managementClusterName=self.id)
        obj = _object(MANAGEMENT_CLUSTER, self.id, spec={"displayName": "c", "fleetWorkspaceName": self.namespace})
        obj["metadata"]["annotations"] = annotations
        await self.engine.create(MANAGEMENT_CLUSTER.target, "", obj)
        await self._seen(MANAGEMENT_CLUSTER, self.id)

    async def _seen(self, kind: Kind[Any], name: str) -> None:
        """Until admission knows of it, which on Kubernetes looks things up in the manager's caches."""
        seen = self.engine.seen
        if seen is not None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while seen.of(kind).get("", name) is None:
                    await asyncio.sleep(0.01)

    async def create_control_plane(self, **spec: Any) -> Json:
        wanted = {"kubernetesVersion": "v1.34.1+k3s1", "clusterName": "c", **spec}
        return await self.engine.create(
            RKE_CONTROL_PLANE.target, self.namespace, _object(RKE_CONTROL_PLANE, "c", spec=wanted)
        )

    async def admin_kubeconfig(self) -> None:
        await self.secret("c-kubeconfig-admin", {"value": "not looked at"})

    async def secret(self, name: str, data: dict[str, str]) -> Json:
        obj = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": {capi_names.CLUSTER_NAME: "c"}},
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
        }
        return await self.engine.create(SECRETS, self.namespace, obj)

    async def user(self, **fields: Any) -> str:
        """A new one."""
        name = f"rider-{secrets.token_hex(3)}"
        await self.engine.create(USER.target, "", _object(USER, name, **fields))
        await self._seen(USER, name)
        return name

    async def token(self, user: str, *, seconds: float | None = None, clusters: tuple[str, ...] = ()) -> NewToken:
        until = None if seconds is None else clock.time() + seconds
        made = mint(user, expires_at=until, clusters=clusters)
        await self.engine.create(TOKEN.target, "", made.obj)
        return made

    async def expires_soon(self, token: str) -> None:
        """Let a token expire within two seconds, or later on a machine too slow for that: no past time is accepted."""
        for seconds in (2, 20, 200):
            try:
                soon = {"expiresAt": clock.rfc3339(clock.time() + seconds)}
                await self.engine.patch(TOKEN.target, "", token, soon)
                return
            except StatusError as error:
                if error.code != HTTPStatus.UNPROCESSABLE_ENTITY:
                    raise

    async def grant(self, user: str, role: str = "cluster-owner", name: str = "g", **fields: Any) -> Json:
        obj = _object(GRANT, name, clusterName=self.id, userName=user, roleTemplateName=role) | fields
        return await self.engine.create(GRANT.target, self.id, obj)

    # what is there

    async def says(self, reason: str, name: str = "g") -> str:
        """The message of a grant, as soon as that is the reason."""
        found = await self.engine.until(
            GRANT.target, self.id, name, lambda obj: condition(obj, "Ready").get("reason") == reason
        )
        return condition(found, "Ready")["message"]  # type: ignore[no-any-return]

    async def management_binding(self, name: str = "g") -> Json | None:
        """What the management plane says."""
        return await self.engine.get(CLUSTER_ROLE_BINDINGS, "", f"remuda:grant:{self.id}:{name}")

    async def workload_binding(self, name: str = "g") -> Json | None:
        return await self.engine.get(CLUSTER_ROLE_BINDINGS, "", f"remuda:grant:{name}")

    async def role(self) -> Json | None:
        return await self.engine.get(CLUSTER_ROLES, "", f"remuda:cluster:{self.id}")

    async def until_grant_is_gone(self, name: str = "g") -> None:
        await self.engine.gone(GRANT.target, self.id, name)


def _object(kind: Any, name: str, **fields: Any) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, **fields}
