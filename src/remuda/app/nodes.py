"""Routes for hosts, by path prefix, and how the embedded engine serves them on its own port (`mount`).

On Kubernetes a manager serves the same on a port of its own (`node_server`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remuda.access.interfaces import ADMINISTRATION, OWN, PREFIX
from remuda.apiserver.http.handler import HttpFront
from remuda.kube.web import TEXT_HEADERS, Handler, Request, Response, Result, header_block
from remuda.providers.bootstrap import endpoints
from remuda.providers.bootstrap.endpoints import Endpoints
from remuda.providers.bootstrap.registration import Registration
from remuda.providers.controlplane.artefacts import Artefacts
from remuda.providers.controlplane.artefacts import endpoint as artefacts
from remuda.providers.shared.manager_address import TUNNEL, Site

OnDenied = Callable[[Request, int, str], None]  # the denied request, the status code, and the reason


def starting() -> dict[str, Handler]:
    """Return handlers that make hosts retry soon until `mount`; the API itself would reject their requests."""

    def wait(request: Request) -> Result:
        return Response(503, b"the manager is starting\n", TEXT_HEADERS + header_block([("Retry-After", "2")]))

    paths = (endpoints.INSTALL, endpoints.AUTHORITIES, endpoints.ASSETS, endpoints.CONNECT, artefacts.PREFIX, TUNNEL)
    return dict.fromkeys((*paths, PREFIX, OWN, ADMINISTRATION), wait)


def mount(
    front: HttpFront,
    site: Site,
    registration: Registration,
    assets: Path | None,
    store: Artefacts | None = None,
    on_denied: OnDenied = lambda request, code, why: None,
) -> None:
    """Serve hosts on the port of the embedded API server, whose own /healthz also serves hosts."""
    for prefix, handler in routes(Endpoints(site, registration, assets, on_denied), store).items():
        if prefix != endpoints.HEALTH:
            front.mount(prefix, handler)


def routes(served: Endpoints, store: Artefacts | None) -> dict[str, Handler]:
    """Return the handlers by path prefix."""
    found = served.routes()
    return found if store is None else {**found, artefacts.PREFIX: artefacts.ArtefactFiles(store).serve}
