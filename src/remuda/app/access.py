"""Access to clusters through this process, assembled once for both engines.

It consists of the tunnels that nodes open, the proxy for users, the endpoints for administrators
(`access.administration`), and the controllers' own connections. `Engine` holds what differs between engines: which
other callers it authenticates, and what its rules permit.
"""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path

import msgspec

from remuda.access import authorization, setup
from remuda.access.active_requests import ActiveRequests, end_revoked_requests, still_reaching
from remuda.access.administration import Administration, Endpoint, PermitsPath
from remuda.access.audit import Audit, id_of, impersonated, path_of, reason
from remuda.access.authorization import Others, Permits
from remuda.access.clusters import Clusters
from remuda.access.interfaces import ADMINISTRATION, OWN, PREFIX, Caller
from remuda.access.proxy import Proxy
from remuda.access.self_service_api import SelfServiceApi
from remuda.access.tokens import Tokens
from remuda.access.transport_pool import TransportPool
from remuda.access.tunnels import Authorizer, tunnel_handler
from remuda.access.types import MANAGEMENT_CLUSTER
from remuda.apiserver.auth.token_authenticators import Authenticated
from remuda.apiserver.auth.tokens import TokenRejected
from remuda.apiserver.auth.user import ANONYMOUS, Attributes, User
from remuda.apiserver.http.interfaces import HeaderView
from remuda.apiserver.server import ApiServer
from remuda.kube.client import Client
from remuda.kube.errors import StatusError, no_such_path
from remuda.kube.web import TEXT_HEADERS, Handler, Request, Response, Result, header_block, text
from remuda.providers.controlplane.artefacts.administration import ArtefactAdministration, Uploads
from remuda.providers.controlplane.artefacts.nano_bundles import Packing
from remuda.providers.machine import leaks
from remuda.providers.machine.leaks import LeakSearchResult, LeakSearchScope
from remuda.providers.shared.manager_address import TUNNEL, Site
from remuda.runtime.manager import Manager
from remuda.runtime.remote import RemoteClusters
from remuda.tunnel.server import TunnelServer
from remuda.tunnel.session_table import Sessions

_MOST_DRIVERS = 100


class Engine(msgspec.Struct, frozen=True):
    """Functions that access needs from an engine."""

    others: Others
    permits: Permits
    permits_path: PermitsPath


class AccessServices:
    """Tunnels, proxy and administration of one manager.

    Created before the manager starts, served once its caches are filled, closed when it ends. `chosen`: the controllers
    that run. Without those of the group access, only tunnels and the endpoints for administrators are served.
    """

    def __init__(
        self,
        manager: Manager,
        site: Site,
        engine: Engine,
        chosen: Sequence[str],
        endpoints: Mapping[str, Endpoint] | None = None,
    ) -> None:
        self._site = site
        self.audit = Audit()
        self._chosen = tuple(name for name in chosen if name in setup.CONTROLLERS)
        self.sessions = Sessions()
        self.clusters = Clusters(manager.caches)
        authorizer = Authorizer(manager.client, manager.caches, self.clusters, self.sessions, self.audit)
        self._tunnels = tunnel_handler(TunnelServer(authorizer, self.sessions, refused=authorizer.refused_to_dial))
        self.transports = TransportPool(
            manager.client, manager.caches, self.clusters, self.sessions, own_url=site.server_url
        )
        self.tokens = Tokens(manager.caches) if self.proxied else None
        self._handlers = self._build_handlers(engine, manager, endpoints or {})
        self._ending = False
        manager.metrics.registry.register(self.sessions.metrics)
        manager.at_end(self._close)

    @property
    def proxied(self) -> bool:
        """Return whether users, and `<cluster>-kubeconfig`, go through the proxy."""
        return bool(self._chosen)

    def _build_handlers(
        self, engine: Engine, manager: Manager, endpoints: Mapping[str, Endpoint]
    ) -> dict[str, Handler]:
        """Return the handlers for users and for administrators."""
        identify = authorization.identifier(self.tokens, engine.others)
        administration = Administration(identify, engine.permits_path, endpoints, self.audit)
        if self.tokens is None:
            return {ADMINISTRATION: administration.serve}
        may_reach = authorization.reaching(engine.permits)
        active_requests = ActiveRequests(still_reaching(self.tokens, may_reach), self.tokens.expires)
        end_revoked_requests(active_requests, manager.caches)
        manager.at_end(active_requests.close)
        proxy = Proxy(identify, may_reach, self.transports, active_requests=active_requests, audit=self.audit)
        own = SelfServiceApi(manager.client, manager.caches, self.clusters, identify, may_reach, self.audit)
        return {PREFIX: proxy.serve, OWN: own.serve, ADMINISTRATION: administration.serve}

    def add(self, manager: Manager, remote: RemoteClusters) -> None:
        """Add the controllers. Connections to clusters are re-established when their transport changes."""
        self.transports.on_change(remote.nudge)
        remote.explained_by(self.transports.told)
        setup.add(manager, remote, self.clusters, self._site, only=self._chosen)

    def on_denied(self, request: Request, code: int, why: str) -> None:
        """Write an audit line for a denied request of a host, too."""
        verb, id = request.method.lower(), id_of(request)
        self.audit.refused(request.peer.address, code, verb, path_of(request), why, id=id)

    def routes(self) -> dict[str, Handler]:
        """Return the handlers by path prefix."""
        return {TUNNEL: self._serve_tunnel, **self._handlers}

    def _serve_tunnel(self, request: Request) -> Result | Awaitable[Result]:
        if request.path != TUNNEL:
            return text(404, "not found\n")
        if self._ending:
            return Response(503, b"the manager is stopping\n", TEXT_HEADERS + header_block([("Retry-After", "2")]))
        return self._tunnels(request)

    async def _close(self) -> None:
        # Refuse new tunnels before the open ones end, because their clients reconnect.
        self._ending = True
        self.sessions.end_all("the manager is stopping")
        await self.transports.close()


def administration_endpoints(client: Client, store: Packing | None, hosts: Path | None) -> dict[str, Endpoint]:
    """Return the endpoints for administrators by name: artefacts of the manager, and leaks on its own machine.

    `hosts`: directory of local drivers' servers; None: this process runs no Jobs.
    """

    async def look_for_leaks(request: Request, path: str) -> LeakSearchResult:
        if path or request.method != "GET":
            raise no_such_path()
        only = request.query.get("driver", [])[:_MOST_DRIVERS]
        found = await leaks.find(client, LeakSearchScope(hosts, remote=False), only)
        return msgspec.structs.replace(found, looked=[f"{one} of {platform.node()}" for one in found.looked])

    found: dict[str, Endpoint] = {"leaks": look_for_leaks}
    if store is not None:
        found["artefacts"] = ArtefactAdministration(store, Uploads(store.directory)).answer
    return found


# -- the embedded engine


def embedded(server: ApiServer) -> Engine:
    async def others(request: Request) -> Caller:
        user = server.authenticator.authenticate(request.peer.certificate, HeaderView(request))
        return Caller(name=user.name, uid=user.uid, groups=user.groups, extra=user.extra)

    async def permits(caller: Caller, cluster: str) -> bool:
        user = _user(caller)
        group, resource = MANAGEMENT_CLUSTER.group, MANAGEMENT_CLUSTER.plural
        return server.authorizer.authorize(
            user, Attributes(verb="get", group=group, version="v3", resource=resource, name=cluster)
        ).allowed

    async def permits_path(caller: Caller, verb: str, path: str) -> bool:
        return server.authorizer.authorize(_user(caller), Attributes(verb=verb, path=path)).allowed

    return Engine(others, permits, permits_path)


def _user(caller: Caller) -> User:
    return User(caller.name, caller.uid, caller.groups, dict(caller.extra))


def audit_denied_requests(server: ApiServer, audit: Audit) -> None:
    """Write an audit line for each request that the engine's own API denies, too."""

    def write(request: Request, user: User | None, verb: str, error: StatusError) -> None:
        who = user.name if user is not None and user.name != ANONYMOUS else ""
        id = id_of(request)
        audit.refused(
            request.peer.address,
            error.code,
            verb,
            path_of(request),
            reason(error),
            user=who,
            impersonated=impersonated(request),
            id=id,
        )
        request.headers[b"audit-id"] = id.encode()  # so that the response has the same id

    server.front.on_denied = write


class UserTokens:
    """Authenticator of Remuda users at the embedded API server (`auth.token_authenticators.TokenAuthenticator`).

    A token that is limited to clusters is valid only at the proxy.
    """

    def __init__(self, tokens: Tokens, api_audiences: tuple[str, ...]) -> None:
        self._tokens = tokens
        self._api_audiences = api_audiences

    def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Authenticated | None:
        common = tuple(audience for audience in self._api_audiences if audience in audiences)
        try:
            caller = self._tokens.caller(token) if common else None
        except StatusError as error:
            raise TokenRejected(str(error.__cause__ or error)) from None
        if caller is None:
            return None
        # Such a token may be in a kubeconfig that its user gave to others. It must not open the management API.
        if caller.clusters is not None:
            raise TokenRejected(f"token {caller.token} is limited to clusters")
        return Authenticated(User(caller.name, caller.uid, caller.groups), common)


# -- any other Kubernetes


def kubernetes(client: Client) -> Engine:
    return Engine(
        authorization.reviewed_tokens(client),
        authorization.reviewed_access(client),
        authorization.reviewed_paths(client),
    )
