"""HTTP endpoints for hosts: the install script, the agent, its CA, and the exchange of a token for a kubeconfig.

They are the same on either engine. Only `/v3/connect/…` authenticates the client, with a token; an address that sends
wrong tokens has to wait before its next attempt. Errors are one line of text, because install scripts show it to
people.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from remuda.kube.attempts import AttemptLimiter
from remuda.kube.errors import StatusError
from remuda.kube.web import TEXT_HEADERS, Handler, Request, Response, Result, header_block, text
from remuda.providers.bootstrap import script
from remuda.providers.bootstrap.files import Files
from remuda.providers.bootstrap.registration import ConnectionInfo, HostRefused
from remuda.providers.shared.manager_address import Site

log = logging.getLogger(__name__)

INSTALL = "/system-agent-install.sh"
AUTHORITIES = "/cacerts"
HEALTH = "/healthz"
ASSETS = "/assets/"
CONNECT = "/v3/connect/"

_JSON = header_block([("Content-Type", "application/json"), ("Cache-Control", "no-store")])
_HOLD_SECONDS = 50.0  # a host asks for 60 at least, and then again
_SOON = 5  # seconds
_UNAUTHORIZED, _TOO_MANY, _UNAVAILABLE = 401, 429, 503
_OURS = "x-cattle-"


class Registrar(Protocol):
    """`registration.RegistrationService`, as far as it is used here. Header names are in lower case. Each raises
    HostRefused."""

    async def connect(self, token: str, headers: Mapping[str, str]) -> ConnectionInfo: ...

    async def cluster_info(self, token: str, headers: Mapping[str, str]) -> str: ...

    async def config_yaml(self, token: str, headers: Mapping[str, str]) -> str: ...


class Endpoints:
    """Endpoints for hosts. `on_denied` is called for each request with an invalid token: the request, the code, and the
    reason.
    """

    def __init__(
        self,
        site: Site,
        registration: Registrar,
        assets_directory: Path | None = None,
        on_denied: Callable[[Request, int, str], None] = lambda request, code, why: None,
    ) -> None:
        self._on_denied = on_denied
        self._site = site
        self._registration = registration
        self._files = Files(assets_directory)
        self._attempts = AttemptLimiter()
        self._connecting: dict[str, Callable[[str, Mapping[str, str]], Awaitable[Response]]] = {
            "agent": self._agent,
            "cluster-info": self._cluster_info,
            "config-yaml": self._config_yaml,
        }

    def routes(self) -> dict[str, Handler]:
        """Handlers by the beginnings of paths."""
        return dict.fromkeys((INSTALL, AUTHORITIES, HEALTH, ASSETS, CONNECT), self.serve)

    def serve(self, request: Request) -> Result | Awaitable[Result]:
        if request.method not in ("GET", "HEAD"):
            return Response(
                405, b"only GET and HEAD are allowed here\n", TEXT_HEADERS + header_block([("Allow", "GET, HEAD")])
            )
        path = request.path
        if path == HEALTH:
            return text(200, "ok")
        if path == AUTHORITIES:
            return Response(200, self._site.ca_pem, TEXT_HEADERS)
        if path == INSTALL:
            return self._install()
        if path.startswith(ASSETS):
            return self._files.serve(request, path.removeprefix(ASSETS))
        answer = self._connecting.get(path.removeprefix(CONNECT)) if path.startswith(CONNECT) else None
        return self._connect(request, answer) if answer is not None else text(404, "there is nothing at this path\n")

    async def _install(self) -> Response:
        content = await asyncio.to_thread(script.public, self._site)  # the first one builds the agent
        return Response(200, content.encode(), TEXT_HEADERS)

    # -- those with a token --------------------------------------------------------------------------------------

    async def _connect(
        self, request: Request, answer: Callable[[str, Mapping[str, str]], Awaitable[Response]]
    ) -> Response:
        loop = asyncio.get_running_loop()
        address = request.peer.address.rpartition(":")[0]
        if wait := self._attempts.wait(address, loop.time()):
            self._on_denied(request, _TOO_MANY, "too many wrong tokens from this address")
            return _refused(_TOO_MANY, "too many wrong tokens from this address", wait)
        token = _token(request)
        if not token:
            self._on_denied(request, _UNAUTHORIZED, "no token in the request")
            return _refused(_UNAUTHORIZED, "no token: send an Authorization header with a Bearer token")
        headers = {name: value for name, value in _headers(request) if name.startswith(_OURS)}
        try:
            async with asyncio.timeout(_HOLD_SECONDS):
                return await answer(token, headers)
        except HostRefused as refusal:
            # Only wrong tokens count: hosts that wait for their objects must not be locked out.
            if refusal.code == _UNAUTHORIZED:
                self._attempts.failed(address, loop.time())
                self._on_denied(request, refusal.code, refusal.message)
            return _refused(refusal.code, refusal.message, refusal.retry_after)
        except TimeoutError:
            return _refused(_UNAVAILABLE, "the objects of this host are not ready yet", _SOON)
        except StatusError as error:
            log.warning("cannot register the host at %s: %s", address, error)
            return _refused(_UNAVAILABLE, "the API server cannot handle this request now", _SOON)

    async def _agent(self, token: str, headers: Mapping[str, str]) -> Response:
        return Response(200, msgspec.json.encode(await self._registration.connect(token, headers)), _JSON)

    async def _cluster_info(self, token: str, headers: Mapping[str, str]) -> Response:
        return text(200, await self._registration.cluster_info(token, headers))

    async def _config_yaml(self, token: str, headers: Mapping[str, str]) -> Response:
        return text(200, await self._registration.config_yaml(token, headers))


def _token(request: Request) -> str:
    scheme, _, token = request.header(b"authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _headers(request: Request) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.items()]


def _refused(code: int, message: str, retry_after: float = 0) -> Response:
    again = header_block([("Retry-After", str(math.ceil(retry_after)))]) if retry_after else b""
    return Response(code, f"{message}\n".encode(), TEXT_HEADERS + again)
