"""HTTP front end: routes every request from the connection to its handler.

extra route → authenticate → impersonate → resource, discovery, OpenAPI or a system path, each with its own
authorization. Requests in progress are limited for each user, and wait for their turn (`flow_control`). An unexpected
failure is a 500 with the request's Audit-Id, under which the log has the traceback; the client never sees a traceback.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any

from remuda.apiserver.auth import messages
from remuda.apiserver.auth.user import Attributes, Authorizer, User
from remuda.apiserver.http.answers import audit_header, error_response
from remuda.apiserver.http.decode import ObjectReader, ProtobufDecoder
from remuda.apiserver.http.discovery import Discovery
from remuda.apiserver.http.flow_control import FlowControl, QueuedRequest
from remuda.apiserver.http.interfaces import (
    Authenticate,
    BuildOpenApi,
    ConnectingRegistry,
    HeaderView,
    Impersonate,
    asks_to_impersonate,
)
from remuda.apiserver.http.limits import HttpLimits
from remuda.apiserver.http.listener import Listener
from remuda.apiserver.http.metrics import RequestMetrics
from remuda.apiserver.http.openapi import OpenApi
from remuda.apiserver.http.openapi_v2 import OpenApiV2
from remuda.apiserver.http.resources import ResourceRequests
from remuda.apiserver.http.routes import RequestInfo, attributes_of, request_info
from remuda.apiserver.http.system import Check, Document, SystemPaths
from remuda.kube.errors import StatusError, internal, no_such_path
from remuda.kube.web import Handler, Request, Response, Result, text

log = logging.getLogger(__name__)

_READS = frozenset({"get", "list", "watch"})
_AUDITED = frozenset({401, 403, 413, 429})
_TIMED_OUT = "request did not complete within the allotted timeout"


class HttpFront:
    """The API on one port.

    `extra_routes` maps path prefixes to handlers that run before all others, and authenticate callers themselves if
    they need to. `checks` belong to all health endpoints, `readiness` of /readyz alone. `documents` are media types and
    answers by path (OpenID configuration, token keys). `protobuf` decodes protobuf bodies of built-in kinds; without it
    they are refused.
    """

    def __init__(
        self,
        registry: ConnectingRegistry,
        *,
        authenticate: Authenticate,
        authorizer: Authorizer,
        impersonate: Impersonate,
        build_openapi: BuildOpenApi,
        extra_routes: Mapping[str, Handler] | None = None,
        checks: Mapping[str, Check] | None = None,
        readiness: Mapping[str, Check] | None = None,
        documents: Mapping[str, Document] | None = None,
        stored_objects: Callable[[], Mapping[str, int]] | None = None,
        protobuf: ProtobufDecoder | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        self.limits = limits or HttpLimits()
        self.metrics = RequestMetrics(stored_objects)
        self._registry = registry
        self._authenticate = authenticate
        self._authorizer = authorizer
        self._impersonate = impersonate
        self._extra = sorted((extra_routes or {}).items(), key=lambda route: -len(route[0]))
        self._resources = ResourceRequests(registry, authorizer, ObjectReader(protobuf), self.metrics.watch_started)
        self._discovery = Discovery(registry.resources)
        self._openapi = OpenApi(registry.resources, build_openapi)
        self._openapi_v2 = OpenApiV2(registry.resources)
        self._system = SystemPaths(
            self.metrics,
            {**(checks or {}), "shutdown": self._shutdown_check},
            readiness or {},
            documents or {},
            self._listed_paths,
        )
        self._flows = FlowControl(self.limits)
        self._listener = _FrontListener(self.handle, self.limits)
        # Called for each request that is refused with one of `_AUDITED`, with the request, its authenticated sender if
        # known (never an impersonated user), its verb, and the refusal.
        self.on_denied: Callable[[Request, User | None, str, StatusError], None] = lambda *what: None

    # -- lifecycle -----------------------------------------------------------------------------------------------

    async def start(self, host: str, port: int, ssl_context: ssl.SSLContext | None) -> None:
        if ssl_context is not None:
            ssl_context.set_alpn_protocols(["http/1.1"])
        await self._listener.start(host, port, ssl_context)

    async def stop(self, grace: float = 10) -> None:
        """Stop accepting requests, end watches, and give requests in progress `grace` seconds."""
        await self._listener.stop(grace)

    @property
    def port(self) -> int:
        return self._listener.port

    def mount(self, prefix: str, handler: Handler) -> None:
        """Add an extra route, or replace its handler, effective at once."""
        kept = [route for route in self._extra if route[0] != prefix]
        self._extra = sorted([*kept, (prefix, handler)], key=lambda route: -len(route[0]))

    def wrap_handler(self, outer: Callable[[Handler], Handler]) -> None:
        """Wrap the handler: `outer` returns a handler that sees every request first, including those for resources."""
        self._listener.handler = outer(self._listener.handler)

    # -- one request ---------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Result | Awaitable[Result]:
        started = perf_counter()
        info = request_info(request)
        sender: User | None = None  # the authenticated user
        try:
            if not info.is_resource and (extra := self._extra_route(request.path)) is not None:
                return extra(request)
            headers = HeaderView(request)
            user = sender = self._authenticate(request.peer.certificate, headers)
            if asks_to_impersonate(request):
                user = self._impersonate(sender, headers, attributes_of(info))
            # The turn counts for the sender: impersonating many users must not give one client many shares.
            turn = self._flows.turn(request, info, sender, user)
            if info.is_resource:
                answer = self._resources.serve(request, info, user, turn)
            else:
                answer = self._other(request, info, user)
            if type(answer) is not Response and isinstance(answer, Awaitable):
                return self._counted(request, info, sender, turn, answer, started)
        except StatusError as error:
            answer = self._refusal(request, info, sender, error)
        if type(answer) is Response:
            self._record(info, answer.status, started)
            return answer
        self._record(info, 200, started)
        return answer

    def read_path(self, user: User, path: str) -> tuple[int, bytes]:
        """Answer a request of an in-process user for a non-resource path: return the code and the body."""
        request = Request(_Nobody(), "GET", path, {})
        info = request_info(request)
        if info.is_resource:
            raise no_such_path()
        answer = self._other(request, info, user)
        if not isinstance(answer, Response):
            raise no_such_path()
        return answer.status, answer.body

    def _extra_route(self, path: str) -> Handler | None:
        for prefix, handler in self._extra:
            if path.startswith(prefix):
                return handler
        return None

    def _other(self, request: Request, info: RequestInfo, user: User) -> Any:
        """Handle all non-resource requests."""
        path = request.path
        attributes = attributes_of(info)
        decision = self._authorizer.authorize(user, attributes)
        if not decision.allowed:
            raise messages.forbidden(user, attributes, decision.reason)
        if path.startswith("/api"):
            return self._discovery.serve(request)
        if path == "/openapi/v2":
            return self._openapi_v2.serve(request)
        if path.startswith("/openapi/v3"):
            return self._openapi.serve(request)
        handler = self._system.find(path)
        if handler is None:
            return text(404, "404 page not found\n")
        return handler(request, lambda other: self._may_read(user, other))

    def _may_read(self, user: User, path: str) -> bool:
        return self._authorizer.authorize(user, Attributes(verb="get", path=path)).allowed

    # -- bounds and counts ---------------------------------------------------------------------------------------

    async def _counted(
        self,
        request: Request,
        info: RequestInfo,
        sender: User,
        turn: QueuedRequest,
        answer: Awaitable[Result],
        started: float,
    ) -> Result:
        metrics, is_read = self.metrics, info.verb in _READS
        if is_read:
            metrics.reads_in_flight += 1
        else:
            metrics.writes_in_flight += 1
        try:
            result = await turn.run(answer)
        except StatusError as error:
            result = self._refusal(request, info, sender, error)
        finally:
            if is_read:
                metrics.reads_in_flight -= 1
            else:
                metrics.writes_in_flight -= 1
        self._record(info, result.status if isinstance(result, Response) else 200, started)
        return result

    def _refusal(self, request: Request, info: RequestInfo, sender: User | None, error: StatusError) -> Response:
        if error.code in _AUDITED:
            self.on_denied(request, sender, info.verb, error)
        return error_response(request, error)

    def _record(self, info: RequestInfo, code: int, started: float) -> None:
        known = info.is_resource and self._registry.resources.find(info.group, info.version, info.resource) is not None
        self.metrics.record(info, known, code, perf_counter() - started)

    # -- for the index and health --------------------------------------------------------------------------------

    def _listed_paths(self) -> list[str]:
        paths = {"/api", "/apis", "/openapi/v2", "/openapi/v3"}
        for resource in self._registry.resources.all():
            if resource.group:
                paths |= {f"/apis/{resource.group}", f"/apis/{resource.api_version}"}
            else:
                paths.add(f"/api/{resource.version}")
        return sorted(paths)

    def _shutdown_check(self) -> str:
        return "process is shutting down" if self._listener.draining else ""


class _Nobody:
    """Peer of a request that came over no connection."""

    certificate = None
    address = ""

    async def read_body(self, request: Request, limit: int) -> bytes:
        return b""


class _FrontListener(Listener):
    """Listener that answers failures and timeouts with API errors."""

    def failed(self, request: Request, error: BaseException) -> Response:
        if isinstance(error, StatusError):
            return error_response(request, error)
        audit = audit_header(request)
        number = audit[10:-2].decode("latin-1")
        log.error("%s %s failed (Audit-Id %s)", request.method, request.path, number, exc_info=error)
        request.headers[b"audit-id"] = number.encode("latin-1")
        return error_response(request, internal(f"the server's log has the reason under Audit-Id {number}"))

    def timed_out(self, request: Request) -> Response:
        return error_response(request, StatusError(504, "Timeout", f"Timeout: {_TIMED_OUT}"))
