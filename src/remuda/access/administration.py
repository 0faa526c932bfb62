"""Endpoints for administrators of the manager itself, for actions without a Kubernetes object:
/k8s/manager/<endpoint>/….

RBAC rules on these paths (`nonResourceURLs`) decide who may use them: the ClusterRole cluster-admin permits all of
them, no other role any. Each request is authorised as its sender and has an audit line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from remuda.access.audit import Audit, AuditEntry, reason
from remuda.access.interfaces import ADMINISTRATION, Caller, Identify
from remuda.kube.errors import StatusError, forbidden_request, no_such_path
from remuda.kube.web import Request, Response, header_block

Endpoint = Callable[[Request, str], Awaitable[Any]]  # a request, and what follows the endpoint's name in its path
PermitsPath = Callable[[Caller, str, str], Awaitable[bool]]  # may the caller use the verb on the path?

_HEADERS = (("Cache-Control", "no-cache, private"), ("Content-Type", "application/json"))


class Administration:
    def __init__(
        self, identify: Identify, permits: PermitsPath, endpoints: Mapping[str, Endpoint], audit: Audit
    ) -> None:
        self._identify = identify
        self._permits = permits
        self._endpoints = endpoints
        self._audit = audit

    async def serve(self, request: Request) -> Response:
        """A `kube.web.Handler`."""
        entry = self._audit.request(request)
        try:
            answer = await self._answer(request, entry)
        except StatusError as error:
            entry.end(error.code, reason(error))
            headers = [*_HEADERS, ("Audit-Id", entry.id), *error.headers.items()]
            return Response(error.code, msgspec.json.encode(error.status()), header_block(headers))
        except BaseException:
            entry.end(500, "internal error")
            raise
        entry.end(200)
        return Response(200, msgspec.json.encode(answer), header_block([*_HEADERS, ("Audit-Id", entry.id)]))

    async def _answer(self, request: Request, entry: AuditEntry) -> Any:
        caller = entry.caller = await self._identify(request)
        verb = request.method.lower()
        if caller.clusters is not None:
            raise forbidden_request("", "", "", f"the token {caller.token} is for clusters only")
        if not await self._permits(caller, verb, request.path):
            why = f'User "{caller.name}" cannot {verb} path "{request.path}": this is for administrators'
            raise forbidden_request("", "", "", why)
        name, _, rest = request.path.removeprefix(ADMINISTRATION).partition("/")
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            raise no_such_path()
        return await endpoint(request, rest)
