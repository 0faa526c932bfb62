"""How clusters are reached through this process, put together once for both engines: tunnels that nodes open."""

from __future__ import annotations

from collections.abc import Awaitable

from remuda.access.clusters import Clusters
from remuda.access.tunnels import Authorizer
from remuda.app.tunnel import tunnel_handler
from remuda.kube.web import TEXT_HEADERS, Handler, Request, Response, Result, header_block, text
from remuda.providers.bootstrap.site import TUNNEL
from remuda.runtime.manager import Manager
from remuda.tunnel.server import Server
from remuda.tunnel.sessions import Sessions


class Access:
    """Made before the manager starts, served when its caches are filled, over when it ends."""

    def __init__(self, manager: Manager) -> None:
        self.sessions = Sessions()
        self.clusters = Clusters(manager.caches)
        authorizer = Authorizer(manager.client, manager.caches, self.clusters, self.sessions)
        self._tunnels = tunnel_handler(Server(authorizer, self.sessions))
        self._ending = False
        manager.metrics.registry.register(self.sessions.metrics)
        manager.at_end(self._close)

    def routes(self) -> dict[str, Handler]:
        """Handlers by the beginnings of paths."""
        return {TUNNEL: self._serve_tunnel}

    def _serve_tunnel(self, request: Request) -> Result | Awaitable[Result]:
        if request.path != TUNNEL:
            return text(404, "there is nothing at this path\n")
        if self._ending:
            return Response(503, b"the manager stops\n", TEXT_HEADERS + header_block([("Retry-After", "2")]))
        return self._tunnels(request)

    async def _close(self) -> None:
        self._ending = True
        self.sessions.end_all("the manager stops")
