"""Authorization of tunnels: only a control plane node may open one, with the token that its plan has delivered.

What must stay true:
- A token names its node and proves it with a MAC that only the manager can make: no node opens a tunnel for another
  node or another cluster, and only the same node replaces its session.
- Everything is checked again each time: the cluster and the Machine exist, and the Machine belongs to that cluster and
  its control plane. When the Machine is gone, or no longer of the control plane, its session ends.
- A Machine that is being deleted exists until it is gone: draining its Node, leaving etcd and removing the Node need
  the API of the cluster, and where nothing else reaches it, a manager that is started meanwhile needs the tunnel again.
- A denied client is told only that; the reason is in the audit line, never with a token in it.

`tunnel_handler` connects the tunnel's server to our HTTP front.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from remuda.access import AccessError
from remuda.access.audit import Audit
from remuda.access.clusters import Clusters
from remuda.capi import remote
from remuda.capi.types import MACHINE, Machine
from remuda.kube.client import Client
from remuda.kube.core import SECRET, SECRETS
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key as ObjectKey
from remuda.kube.web import TEXT_HEADERS, Handler, Request, Response, Result, Upgrade, header_block
from remuda.providers.controlplane import hosts, state
from remuda.providers.controlplane.identity import id_of
from remuda.providers.controlplane.render import tunnel as tunnel_tokens
from remuda.providers.shared.manager_address import TUNNEL
from remuda.providers.shared.types.controlplane import RKEControlPlane
from remuda.runtime.caches import Caches
from remuda.tunnel.server import RefusalResponse, TunnelRequest, TunnelServer
from remuda.tunnel.session_table import Key, Sessions

_UNWATCHED_SECONDS = 5.0  # how long a key is cached if its Secret is not watched (no Cluster API label)
_QUIET_SECONDS = 60.0  # between two lines about the same client and reason
_MOST_REMEMBERED = 4096


class _Kept(NamedTuple):
    """Key of a control plane, as it was read."""

    read: float
    version: str
    key: bytes


class _Refused(AccessError):
    """Reason why a tunnel is denied, for the log."""


class Authorizer:
    def __init__(
        self, client: Client, caches: Caches, clusters: Clusters, sessions: Sessions, audit: Audit | None = None
    ) -> None:
        self._client = client
        self._audit = audit or Audit()
        self._clusters = clusters
        self._sessions = sessions
        self._machines = caches.of(MACHINE)
        self._machines.listen(self._machine_changed)
        clusters.planes.listen(self._plane_changed)
        self._secrets = remote.cluster_secrets(caches)
        self._keys: dict[ObjectKey, _Kept] = {}  # by state Secret
        self._admitted: dict[str, Key] = {}  # by uid of the Machine
        self._logged: dict[tuple[str, str], float] = {}

    async def __call__(self, asking: TunnelRequest) -> Key | None:
        shown = tunnel_tokens.parse(_bearer(asking))
        try:
            if shown is None:
                raise _Refused("it has no tunnel token")
            machine = await self._proven(shown)
        except _Refused as refused:
            self._audit_denial(asking, shown, str(refused))
            return None
        key = Key(shown.cluster, shown.machine)
        self._admitted[machine.metadata.uid] = key
        return key

    async def _proven(self, shown: tunnel_tokens.PresentedToken) -> Machine:
        plane = self._clusters.plane(shown.cluster)
        if plane is None:
            raise _Refused("no cluster has this id")
        machine = self._machine(plane, shown.machine)
        if machine is None:
            raise _Refused("the cluster has no such Machine")
        if not await self._proves(shown, plane, machine.metadata.uid):
            raise _Refused("the token does not belong to this Machine")
        # Reading the key took time, so check the Machine again.
        now = self._machine(plane, shown.machine)
        if now is None or now.metadata.uid != machine.metadata.uid:
            raise _Refused("the cluster has no such Machine")
        if not hosts.roles(now.metadata.labels).control_plane:
            raise _Refused("the Machine is not part of the control plane")
        return now

    def _machine(self, plane: RKEControlPlane, name: str) -> Machine | None:
        found = self._machines.get(plane.metadata.namespace, name)
        return found if found is not None and found.spec.cluster_name == plane.spec.cluster_name else None

    async def _proves(self, shown: tunnel_tokens.PresentedToken, plane: RKEControlPlane, uid: str) -> bool:
        return tunnel_tokens.proves(shown, await self._key(_place(plane)), uid)

    async def _key(self, place: ObjectKey) -> bytes:
        """Return the key of a control plane, cached while its Secret is unchanged. A Secret that is not watched is read
        again after a while."""
        now = asyncio.get_running_loop().time()
        seen = self._secrets.get(*place)
        kept = self._keys.get(place)
        if kept is not None:
            current = seen.metadata.resource_version == kept.version if seen else now < kept.read + _UNWATCHED_SECONDS
            if current:
                return kept.key
        # Stored also if the read fails: if the Secret is not watched, this bounds the reads that denied clients cause.
        kept = _Kept(now, "", b"")
        try:
            found = SECRET.decode(await self._client.get(SECRETS, *place))
            kept = _Kept(now, found.metadata.resource_version, found.data.get(state.TUNNEL, b"").strip())
        except StatusError as error:
            raise _Refused(f"cannot read the key in Secret {place}: {error}") from None
        finally:
            self._remember(place, kept)
        return kept.key

    def _remember(self, place: ObjectKey, kept: _Kept) -> None:
        self._keys.pop(place, None)
        self._keys[place] = kept
        if len(self._keys) > _MOST_REMEMBERED:
            del self._keys[next(iter(self._keys))]

    # Open tunnels

    def _machine_changed(self, before: Machine | None, after: Machine | None, initial: bool) -> None:
        if before is None or (after is not None and hosts.roles(after.metadata.labels).control_plane):
            return
        key = self._admitted.pop(before.metadata.uid, None)
        # A new Machine of the same name may be admitted before the deletion of the old one arrives. The session is its.
        if key is None or key in self._admitted.values():
            return
        why = "its Machine was deleted" if after is None else "its Machine is no longer part of the control plane"
        for session in self._sessions.of(key.cluster):
            if session.key == key:
                session.end(why)

    def _plane_changed(self, before: RKEControlPlane | None, after: RKEControlPlane | None, initial: bool) -> None:
        if before is None or (after is not None and id_of(after) == id_of(before)):
            return
        # Another control plane may have the same id. Its sessions stay.
        if self._clusters.plane(id_of(before)) is None:
            self._sessions.forget(id_of(before))
        self._keys.pop(_place(before), None)

    # Audit

    def refused_to_dial(self, key: Key, address: str, what: str) -> None:
        """Audit a node that wants to dial through the manager (`tunnel.Server.refused`)."""
        why = f"the tunnel of {key} requested a connection to {what}: nodes may not dial through the manager"
        self._audit.refused(address, 403, "dial", TUNNEL, why, user=f"tunnel:{key}", cluster=key.cluster)

    def _audit_denial(self, asking: TunnelRequest, shown: tunnel_tokens.PresentedToken | None, why: str) -> None:
        """Audit a denied tunnel. The same denial is not repeated for a while: a node retries every few seconds."""
        claims = f" that claims to be {shown.machine} of cluster {shown.cluster}" if shown is not None else ""
        address = asking.address.rpartition(":")[0] or asking.address
        now = asyncio.get_running_loop().time()
        if now - self._logged.get((address, claims + why), -_QUIET_SECONDS) < _QUIET_SECONDS:
            return
        if len(self._logged) >= _MOST_REMEMBERED:
            self._logged.clear()
        self._logged[address, claims + why] = now
        text = f"denied a tunnel to a client{claims}: {why}"
        self._audit.refused(asking.address, 401, "tunnel", TUNNEL, text, cluster=shown.cluster if shown else "")


def _place(plane: RKEControlPlane) -> ObjectKey:
    """Return the key of the Secret that holds the control plane's MAC key."""
    return ObjectKey(plane.metadata.namespace, state.secret_name(plane.spec.cluster_name))


def _bearer(asking: TunnelRequest) -> str:
    scheme, _, token = asking.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def tunnel_handler(server: TunnelServer) -> Handler:
    """Return the HTTP handler that connects the tunnel's server to our HTTP front."""

    async def handle(request: Request) -> Result:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
        peer = request.peer
        answer = await server.admit(TunnelRequest(request.method, headers, peer.address, peer.certificate))
        if isinstance(answer, RefusalResponse):
            return Response(answer.status, answer.text.encode(), TEXT_HEADERS + header_block(answer.headers))
        accept: Any = answer.accept
        return Upgrade(accept, header_block(answer.headers))

    return handle
