"""Routes for hosts by path prefix, and the servers of these routes: the endpoints, and the access to their Secret.

The embedded API server serves the routes on its own port (`mount`). A manager on Kubernetes serves them on a port of
its own (`NodeServer`). There every replica serves, whether or not it leads. The certificate and its CA are in a Secret
that all replicas share; hosts pin that CA, so it stays for as long as it is valid. A certificate of the user's own is
served beside it, to clients that ask for a name it is valid for.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from remuda.access.interfaces import ADMINISTRATION, OWN, PREFIX
from remuda.apiserver.http.handler import HttpFront
from remuda.apiserver.http.listener import Listener
from remuda.app.passthrough import Passthrough
from remuda.app.process import Address, StartRefused, shown, why_not
from remuda.app.site import SiteSettings
from remuda.kube import clock
from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.kube.http.tls import load_pair
from remuda.kube.kubeconfig import ClientConfig
from remuda.kube.objects import Key
from remuda.kube.web import TEXT_HEADERS, Handler, Request, Response, Result, header_block
from remuda.providers.bootstrap import endpoints
from remuda.providers.bootstrap.endpoints import Endpoints
from remuda.providers.bootstrap.registration import RegistrationService
from remuda.providers.controlplane.artefacts import Artefacts
from remuda.providers.controlplane.artefacts import endpoint as artefacts
from remuda.providers.shared.manager_address import TUNNEL, Site
from remuda.runtime.manager import Manager
from remuda.runtime.tasks import Tasks
from remuda.runtime.webhooks import certificates

log = logging.getLogger(__name__)

SECRET_NAME = "remuda-nodes"  # noqa: S105 - name of the Secret
_COMMON_NAME = "remuda"
_GRACE_SECONDS = 5.0
_LONGEST_SLEEP_SECONDS = 24 * 3600.0
_RETRY_SECONDS = 300.0

OnDenied = Callable[[Request, int, str], None]  # the denied request, the status code, and the reason


def starting_routes() -> dict[str, Handler]:
    """Return handlers that make hosts retry soon until `mount`; the API itself would reject their requests."""

    def wait(request: Request) -> Result:
        return Response(503, b"the manager is starting\n", TEXT_HEADERS + header_block([("Retry-After", "2")]))

    paths = (endpoints.INSTALL, endpoints.AUTHORITIES, endpoints.ASSETS, endpoints.CONNECT, artefacts.PREFIX, TUNNEL)
    return dict.fromkeys((*paths, PREFIX, OWN, ADMINISTRATION), wait)


def mount(
    front: HttpFront,
    site: Site,
    registration: RegistrationService,
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


class NodeServer:
    """HTTPS server for hosts. Created before the controllers, which need its Site; `add` makes it serve."""

    def __init__(
        self, client: Client, access: ClientConfig, listen: Address, site: SiteSettings, namespace: str
    ) -> None:
        self._client = client
        self._listen = listen
        self._settings = site
        self._secret = Key(namespace, SECRET_NAME)
        self._names = tuple(dict.fromkeys((site.name(listen), *_own_names(listen))))
        self._passthrough = Passthrough(access)
        self._context = _context()
        self._presented = site.presented(listen)
        if self._presented is not None:
            self._presented.beside(self._context, _context)
        self._tasks = Tasks()
        self._routes: dict[str, Handler] = {}
        self._listener = Listener(self._serve)
        self._serving: certificates.Serving

    @property
    def port(self) -> int:
        return self._listener.port

    async def prepare(self) -> Site:
        """Create or renew the certificate and return the Site for hosts.

        Raises StartRefused with a message for the user.
        """
        try:
            await self._renew()
        except StatusError as error:
            raise StartRefused(f"cannot store the certificate for hosts in Secret {self._secret}: {error}") from None
        own = self._serving.ca_pem
        return self._settings.settled(self._listen, own if self._presented is None else self._presented.trusted(own))

    def add(
        self,
        manager: Manager,
        site: Site,
        registration: RegistrationService,
        store: Artefacts | None = None,
        more: Mapping[str, Handler] | None = None,
        on_denied: OnDenied = lambda request, code, why: None,
    ) -> None:
        """Serve from when the caches are filled until the manager ends."""
        served = Endpoints(site, registration, self._settings.assets, on_denied)
        self._passthrough.on_denied = on_denied
        found = routes(served, store) | dict(more or {})
        # The longest prefix first: `_serve` takes the first one that matches.
        self._routes = {prefix: found[prefix] for prefix in sorted(found, key=len, reverse=True)}
        manager.at_start(self.start)
        manager.at_end(self.stop)

    async def start(self) -> None:
        try:
            await self._listener.start(*self._listen, self._context)
        except OSError as error:
            raise StartRefused(f"cannot listen on {shown(self._listen)} for --nodes-listen: {why_not(error)}") from None
        self._tasks.spawn("renew the certificate for hosts", self._keep_renewed())

    async def stop(self) -> None:
        await self._tasks.close()
        if self._listener.port:
            await self._listener.stop(_GRACE_SECONDS)
        await self._passthrough.close()

    def _serve(self, request: Request) -> Result | Awaitable[Result]:
        for prefix, serve in self._routes.items():
            if request.path.startswith(prefix):
                return serve(request)
        return self._passthrough.serve(request)

    # -- the certificate -----------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        """Renew the certificate; the next handshake uses it."""
        serving = await certificates.ensure(self._client, self._secret, self._names, common_name=_COMMON_NAME)
        load_pair(self._context, serving.certificate_pem, serving.key_pem, f"the Secret {self._secret}")
        self._serving = serving

    async def _keep_renewed(self) -> None:
        while True:
            left = max(self._serving.renew_at - clock.time(), 0.0)
            await asyncio.sleep(min(left, _LONGEST_SLEEP_SECONDS))
            if clock.time() < self._serving.renew_at:
                continue
            try:
                await self._renew()
            except Exception as error:
                log.warning(
                    "cannot renew the serving certificate of the node endpoint: %s; retrying in %.0f s",
                    error,
                    _RETRY_SECONDS,
                )
                await asyncio.sleep(_RETRY_SECONDS)


def _context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    return made


def _own_names(listen: Address) -> tuple[str, ...]:
    return () if listen[0] in ("", "0.0.0.0", "::") else (listen[0],)  # noqa: S104 - names, not where it listens
