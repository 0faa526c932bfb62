"""Transports to clusters: through the tunnel of a cluster while it has one, else directly.

Both kinds authenticate as the cluster's administrator, with the Secret `<name>-kubeconfig-admin`, and verify the
cluster's API by the cluster's own CA. The pool reads the Secret only when its version differs from the version that a
transport was built from, so that most requests read nothing.

What must stay true:
- A transport that was replaced (new credentials, a tunnel that opened or closed) stays open for requests that use it.
  The last of them closes it.
- When the first tunnel of a cluster opens, or the last one closes, listeners that keep connections are called at once.
- The manager never uses a kubeconfig that leads through its own proxy.
- If a cluster had a tunnel and direct connections to it time out, further requests do not wait for the timeout again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import aiohttp
import msgspec

from remuda.access.cluster_transport import ClusterTransport
from remuda.access.clusters import Clusters
from remuda.access.connectivity import Connectivity, unavailable
from remuda.access.interfaces import PREFIX
from remuda.capi import names, remote
from remuda.kube import kubeconfig
from remuda.kube.client import Client
from remuda.kube.errors import StatusError, not_found
from remuda.kube.http import HttpClient
from remuda.kube.http.link import Connector, direct
from remuda.kube.http.tls import client_context
from remuda.kube.http.transport import NO_CONNECTION
from remuda.kube.kubeconfig import ClientConfig, KubeconfigError
from remuda.kube.objects import Key
from remuda.providers.controlplane.identity import id_of
from remuda.providers.shared.names import admin_kubeconfig_secret
from remuda.providers.shared.types.controlplane import RKEControlPlane
from remuda.runtime.caches import Caches
from remuda.runtime.outcome import Retryable
from remuda.runtime.remote import MOST_ANSWER_BYTES
from remuda.runtime.tasks import Tasks
from remuda.tunnel.connector import TunnelConnector
from remuda.tunnel.session_table import SessionEvent, Sessions

API = "127.0.0.1:6443"  # where a server's own API is, seen from that server
_KEEP_SECONDS = 80.0  # there is no load balancer behind a tunnel, and API servers keep idle connections for 90 s
_SHUT_SECONDS = 15.0  # time without direct attempts after one timed out, for a cluster that had a tunnel


class TransportPool:
    """Pool of transports. `own_url`: URL of our proxy, to recognize kubeconfigs that lead there; `api`: address that is
    dialled through tunnels."""

    def __init__(
        self, client: Client, caches: Caches, clusters: Clusters, sessions: Sessions, *, own_url: str, api: str = API
    ) -> None:
        self._client = client
        self._clusters = clusters
        self._sessions = sessions
        self._api = api
        self._own = own_url.rstrip("/") + PREFIX
        self._secrets = remote.cluster_secrets(caches)
        self._others = remote.dialer(client, self._over_http)
        self._transports: dict[str, ClusterTransport] = {}
        self._tunnelled: set[str] = set()  # ids of clusters that have a tunnel
        self._unreachable_until: dict[str, float] = {}  # until when no direct connection to a cluster is tried
        self._listeners: list[Callable[[Key], None]] = []
        self._tasks = Tasks()
        self._connectivity = Connectivity(sessions)
        sessions.listen(self._session_changed)
        clusters.planes.listen(self._plane_changed)

    def on_change(self, told: Callable[[Key], None]) -> None:
        """Call `told` with each CAPI Cluster whose transport has changed."""
        self._listeners.append(told)

    async def of(self, cluster: str) -> ClusterTransport:
        key = self._clusters.find(cluster)
        if key is None:
            raise not_found("management.cattle.io", "clusters", cluster)
        while True:
            made_of = self._made_of(cluster, key)
            present = self._transports.get(cluster)
            if present is not None and present.made_of == made_of:
                self._raise_if_unreachable(present)
                return present
            access = await self._admin(key)
            if self._made_of(cluster, key) == made_of:  # nothing has changed while it was read
                break
        present = self._transports.get(cluster)
        if present is not None and present.made_of == made_of:  # another request was faster
            return present
        made = self._make(cluster, key, access, made_of)
        self._retire(cluster)
        self._transports[cluster] = made
        return made

    async def dial(self, cluster: Key) -> Client:
        """For our own controllers: `runtime.remote.Dial`."""
        id = self._clusters.id(cluster)
        if not id or self._secrets.get(*admin_secret(cluster)) is None:
            return await self._others(cluster)
        try:
            access = await self._admin(cluster)
        except StatusError as error:
            raise Retryable(str(error)) from None
        if not self._sessions.has(id):
            # The owner of the cluster decides what its API answers. The limit protects the memory of the manager.
            return HttpClient(access, most_bytes=MOST_ANSWER_BYTES)
        return HttpClient(self._through_tunnel(access), connector=self._tunnel(id), most_bytes=MOST_ANSWER_BYTES)

    async def close(self) -> None:
        for cluster in list(self._transports):
            self._retire(cluster, now=True)
        await self._tasks.finish(1.0)
        await self._tasks.close()

    # Building transports

    def _made_of(self, cluster: str, key: Key) -> tuple[str, ...]:
        secret = self._secrets.get(*admin_secret(key))
        if secret is None:
            raise unavailable(f"the cluster {cluster} has not connected yet; its control plane has no kubeconfig yet")
        through = "tunnel" if self._sessions.has(cluster) else "direct"
        return (through, str(key), secret.metadata.uid, secret.metadata.resource_version)

    async def _admin(self, cluster: Key) -> ClientConfig:
        """Return the address of a cluster and the admin credentials for it.

        Raises a 503 whose message reveals nothing of the Secret's content.
        """
        namespace, name = admin_secret(cluster)
        origin = f"Secret {namespace}/{name}"
        try:
            data = await remote.secret_data(self._client, namespace, name) or {}
            access = kubeconfig.parse(data.get(names.KUBECONFIG_KEY, b""), origin=origin)
        except (KubeconfigError, Retryable) as error:
            raise unavailable(str(error)) from None
        if access.insecure or not access.server.startswith("https://"):
            raise unavailable(
                f"the {origin} cannot be used to verify the cluster's API: it needs an https server and a CA"
            )
        return access

    def _make(self, cluster: str, key: Key, access: ClientConfig, made_of: tuple[str, ...]) -> ClusterTransport:
        through = made_of[0]
        connector: Connector = direct
        if through == "tunnel":
            access, connector = self._through_tunnel(access), self._tunnel(cluster)
        try:
            context = client_context(
                ca_pem=_bytes(access.ca),
                certificate_pem=_bytes(access.client_certificate),
                key_pem=_bytes(access.client_key),
                origin=access.origin,
            )
        except KubeconfigError as error:
            raise unavailable(str(error)) from None
        return ClusterTransport(
            cluster=cluster,
            key=key,
            through=through,
            access=access,
            context=context,
            connector=connector(context),
            sessions=self._sessions,
            made_of=made_of,
            explain=self.unreachable,
            on_timeout=lambda: self._on_timeout(cluster),
        )

    def _through_tunnel(self, access: ClientConfig) -> ClientConfig:
        # The server name and the proxy of the kubeconfig are for the direct connection.
        return msgspec.structs.replace(access, server=f"https://{self._api}", tls_server_name="", proxy_url="")

    def _tunnel(self, cluster: str) -> Connector:
        def connector(context: ssl.SSLContext | None) -> aiohttp.BaseConnector:
            # limit=0: aiohttp's default of 100 connections would let 100 watches block all other requests.
            return TunnelConnector(
                self._sessions, cluster, tls=context, address=self._api, limit=0, keepalive_timeout=_KEEP_SECONDS
            )

        return connector

    def _over_http(self, access: ClientConfig) -> Client:
        if access.server.startswith(self._own):
            raise Retryable(f"the {access.origin} uses this manager's own proxy, which the manager itself cannot use")
        return HttpClient(access, most_bytes=MOST_ANSWER_BYTES)

    # Direct connections that time out

    def _on_timeout(self, cluster: str) -> None:
        if self._connectivity.had_tunnel(cluster):
            self._unreachable_until[cluster] = asyncio.get_running_loop().time() + _SHUT_SECONDS

    def _raise_if_unreachable(self, way: ClusterTransport) -> None:
        until = self._unreachable_until.get(way.cluster)
        if until is not None and way.through == "direct" and asyncio.get_running_loop().time() < until:
            raise self.unreachable(way.cluster, f"cannot reach {way.server}: {NO_CONNECTION}")

    # Changes

    def _retire(self, cluster: str, *, now: bool = False) -> None:
        present = self._transports.pop(cluster, None)
        if present is not None:
            present.retire(lambda closing: self._tasks.spawn(f"close the way to {cluster}", closing), now=now)

    def _session_changed(self, event: SessionEvent) -> None:
        cluster = event.key.cluster
        key = self._clusters.find(cluster)
        if key is None:
            self._connectivity.forget(cluster)
        # Only the first tunnel that opens and the last one that closes change the transport.
        if self._sessions.has(cluster) == (cluster in self._tunnelled):
            return
        self._tunnelled ^= {cluster}
        self._unreachable_until.pop(cluster, None)
        self._retire(cluster)
        if key is not None:
            for told in self._listeners:
                told(key)

    def _plane_changed(self, before: RKEControlPlane | None, after: RKEControlPlane | None, initial: bool) -> None:
        if before is not None and (after is None or id_of(after) != id_of(before)):
            gone = id_of(before)
            if self._clusters.find(gone) is None:
                self._retire(gone)
                self._unreachable_until.pop(gone, None)
                self._connectivity.forget(gone)

    # Errors

    def unreachable(self, cluster: str, why: str) -> StatusError:
        return self._connectivity.unreachable(cluster, why)

    def silent_since(self, cluster: str, node: str) -> float | None:
        """`providers.controlplane.gather.Silence`."""
        return self._connectivity.silent_since(cluster, node)

    def told(self, cluster: Key, why: str) -> str:
        """Return why a cluster cannot be reached, for controllers that have tried: `runtime.remote.Explain`."""
        id = self._clusters.id(cluster)
        if not id or self._secrets.get(*admin_secret(cluster)) is None:
            return why
        return self.unreachable(id, why).message


def admin_secret(cluster: Key) -> Key:
    return Key(cluster.namespace, admin_kubeconfig_secret(cluster.name))


def _bytes(pem: object) -> bytes:
    """Return a PEM that came from a Secret, and so is never a file."""
    assert isinstance(pem, bytes)
    return pem
