"""The proxy to clusters as a whole: our engine with the proxy and the tunnel's endpoint mounted on it, in the test's
own loop. Who asks and whom a cluster is open to is what a test says; ways, sessions and tunnel clients are real.

A caller's bearer token is his name. The node of a tunnel says by headers whose it is.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from remuda.access.clusters import Clusters
from remuda.access.interfaces import PREFIX, Caller
from remuda.access.proxy import Proxy
from remuda.access.transport_pool import TransportPool, admin_secret
from remuda.access.tunnels import tunnel_handler
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.capi import names
from remuda.kube import kubeconfig
from remuda.kube.core import NAMESPACES, SECRETS
from remuda.kube.errors import AlreadyExists, unauthorized
from remuda.kube.objects import Key
from remuda.kube.web import Request
from remuda.providers.controlplane.definitions import definitions
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.runtime.caches import Caches
from remuda.runtime.definitions import install
from remuda.tunnel import session_table as tunnels
from remuda.tunnel.allow import Allow
from remuda.tunnel.client import ReconnectDelays, TunnelClient, TunnelSettings
from remuda.tunnel.mux import Timing
from remuda.tunnel.server import TunnelRequest, TunnelServer
from remuda.tunnel.session_table import Sessions
from tests.lab.limits import LIMIT_SECONDS

WAIT = LIMIT_SECONDS
LIVELY = Timing(ping_every=0.5, heard_within=WAIT, sent_within=WAIT)
NAMESPACE = "ranch"


class ProxiedCluster:
    def __init__(self, engine: ApiServer, *, api: str) -> None:
        self.engine = engine
        self.client = engine.client()
        self.callers: dict[str, Caller] = {}
        self.closed: dict[tuple[str, str], str] = {}  # caller and cluster → why not
        self.changed: list[Key] = []
        self.sessions = Sessions()
        self.caches = Caches(self.client)
        self.clusters = Clusters(self.caches)
        self.ways = TransportPool(self.client, self.caches, self.clusters, self.sessions, own_url=engine.url, api=api)
        self.ways.on_change(self.changed.append)
        self.proxy = Proxy(self._identify, self._may_reach, self.ways)
        self.refuse_tunnels = False
        self._tunnels: list[tuple[TunnelClient, threading.Thread]] = []

    async def start(self) -> None:
        await install(self.client, definitions())
        await self.caches.start()
        self.engine.front.mount(PREFIX, self.proxy.serve)
        self.engine.front.mount(
            "/v3/connect", tunnel_handler(TunnelServer(self._authorize, self.sessions, timing=LIVELY))
        )
        await self.client.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE}})

    async def stop(self) -> None:
        await self.end_tunnels()
        await self.ways.close()
        await self.caches.close()

    # Who

    def caller(self, name: str, **said: Any) -> str:
        """Known from now on by a token, which is returned."""
        self.callers[name] = Caller(name=name, token=f"token-of-{name}", **said)
        return name

    async def _identify(self, request: Request) -> Caller:
        found = self.callers.get(request.header(b"authorization").removeprefix("Bearer "))
        if found is None:
            raise unauthorized()
        return found

    async def _may_reach(self, caller: Caller, cluster: str) -> str:
        return self.closed.get((caller.name, cluster), "")

    def taken_back(self, name: str, cluster: str, why: str) -> None:
        """From now on, also from what goes on."""
        self.closed[name, cluster] = why
        self.proxy.active_requests.recheck(lambda call: call.caller.name == name)

    async def _authorize(self, asking: TunnelRequest) -> tunnels.Key | None:
        if self.refuse_tunnels:
            return None
        return tunnels.Key(asking.headers.get("x-cluster", ""), asking.headers.get("x-node", ""))

    # Clusters

    async def cluster(self, id: str, config: dict[str, Any], *, name: str = "") -> Key:
        """Known to the proxy when it returns. `config`: an administrator's kubeconfig."""
        key = Key(NAMESPACE, name or id)
        plane = {
            "metadata": {"name": key.name},
            "spec": {"clusterName": key.name, "managementClusterName": id, "kubernetesVersion": "v1.36.4+k3s1"},
        }
        await self.client.create(RKE_CONTROL_PLANE.target, NAMESPACE, plane)
        await self.credentials(key, config)
        await self.until(lambda: self.clusters.find(id) == key)
        return key

    async def credentials(self, cluster: Key, config: dict[str, Any]) -> None:
        """Made, or replaced."""
        name = admin_secret(cluster).name
        secret = {
            "metadata": {"name": name, "labels": {names.CLUSTER_NAME: cluster.name}},
            "data": {names.KUBECONFIG_KEY: base64.b64encode(yaml.safe_dump(config).encode()).decode()},
        }
        try:
            value = await self.client.create(SECRETS, cluster.namespace, secret)
        except AlreadyExists:
            value = await self.client.patch(SECRETS, cluster.namespace, name, secret)
        version = json.loads(value)["metadata"]["resourceVersion"]
        await self.until(lambda: self._seen(cluster) == version)

    def _seen(self, cluster: Key) -> str:
        seen = self.ways._secrets.get(*admin_secret(cluster))
        return seen.metadata.resource_version if seen is not None else ""

    async def tunnel(self, cluster: str, node: str = "roan", *, allow: str = "tcp/127.0.0.1:*") -> TunnelClient:
        """Once it is connected."""
        settings = TunnelSettings(
            urls=(self.engine.url.replace("https://", "wss://") + "/v3/connect",),
            authorities=self.engine.pki.ca_certificate_pem.decode(),
            headers=(("X-Cluster", cluster), ("X-Node", node)),
            allow=Allow([allow]),
            timing=LIVELY,
            waits=ReconnectDelays(first=0.05, longest=0.2, attempt=WAIT),
        )
        client = TunnelClient(lambda: settings)
        thread = threading.Thread(target=client.run, daemon=True)
        thread.start()
        self._tunnels.append((client, thread))
        await self.until(lambda: any(session.key.node == node for session in self.sessions.of(cluster)))
        return client

    async def end_tunnels(self) -> None:
        """All of them, for good."""
        for client, _ in self._tunnels:
            client.stop()
        for _, thread in self._tunnels:
            await asyncio.to_thread(thread.join, WAIT)
        self._tunnels.clear()
        await self.until(lambda: not self.sessions.clusters())

    def cut(self, cluster: str, reason: str = "the link was cut") -> None:
        """Every tunnel of it ends; its clients come back."""
        for session in self.sessions.of(cluster):
            session.end(reason)

    # What is seen

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(WAIT):
            while not true():
                await asyncio.sleep(0.01)

    def url(self, cluster: str) -> str:
        return f"{self.engine.url}{PREFIX}{cluster}"

    def kubeconfig_authority(self) -> str:
        """As kubeconfigs have it."""
        return base64.b64encode(self.engine.pki.ca_certificate_pem).decode()

    def kubeconfig(self, path: Path, cluster: str, token: str) -> Path:
        authority = self.engine.pki.ca_certificate_pem
        kubeconfig.write(path, kubeconfig.build(self.url(cluster), ca_pem=authority, token=token))
        return path


@asynccontextmanager
async def proxied(folder: Path, *, api: str = "127.0.0.1:6443") -> AsyncIterator[ProxiedCluster]:
    """`api`: where the API of clusters is, seen from the other end of their tunnels."""
    engine = await ApiServer.start(ServerSettings(data_dir=folder, port=0))
    try:
        made = ProxiedCluster(engine, api=api)
        await made.start()
        try:
            yield made
        finally:
            await made.stop()
    finally:
        await engine.stop()


class AuditLines(logging.Handler):
    """What was audited while it is in use (`with`), decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(record.getMessage()))

    def __enter__(self) -> AuditLines:
        self._logger = logging.getLogger("remuda.audit")
        self._level = self._logger.level
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        return self

    def __exit__(self, *what: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)
