"""What hosts are served, by the beginnings of paths, and how the embedded engine serves it on its own port (`mount`).

On Kubernetes a manager serves the same on a port of its own (`node_server`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remuda.access.seams import OWN, PREFIX
from remuda.apiserver.http.front import HttpFront
from remuda.kube.web import TEXT_HEADERS, Handler, Request, Response, Result, header_block
from remuda.providers.bootstrap import endpoints
from remuda.providers.bootstrap.endpoints import Endpoints
from remuda.providers.bootstrap.registration import Registration
from remuda.providers.bootstrap.site import TUNNEL, Site
from remuda.providers.controlplane.artefacts import Artefacts
from remuda.providers.controlplane.artefacts import serving as artefacts

KeptOut = Callable[[Request, int, str], None]  # what was refused, the code, and why


def starting() -> dict[str, Handler]:
    """What hosts hear until `mount`: that it will not take long. The API would tell them that it does not know them."""

    def wait(request: Request) -> Result:
        return Response(503, b"the manager is starting\n", TEXT_HEADERS + header_block([("Retry-After", "2")]))

    paths = (endpoints.INSTALL, endpoints.AUTHORITIES, endpoints.ASSETS, endpoints.CONNECT, artefacts.PREFIX, TUNNEL)
    return dict.fromkeys((*paths, PREFIX, OWN), wait)


def mount(
    front: HttpFront,
    site: Site,
    registration: Registration,
    assets: Path | None,
    kept: Artefacts | None = None,
    kept_out: KeptOut = lambda request, code, why: None,
) -> None:
    """On the port of the embedded engine, whose own /healthz serves hosts as well."""
    for prefix, handler in routes(Endpoints(site, registration, assets, kept_out), kept).items():
        if prefix != endpoints.HEALTH:
            front.mount(prefix, handler)


def routes(served: Endpoints, kept: Artefacts | None) -> dict[str, Handler]:
    """Handlers by the beginnings of paths."""
    found = served.routes()
    return found if kept is None else {**found, artefacts.PREFIX: artefacts.ArtefactFiles(kept).serve}
