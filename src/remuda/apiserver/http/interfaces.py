"""Interfaces of the parts that the HTTP layer is assembled with, and the view of a request that they get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from remuda.apiserver.auth.user import Attributes, Headers, User
from remuda.apiserver.http.limits import HttpLimits
from remuda.apiserver.registry.calls import Call, RegistryInterface
from remuda.apiserver.resource import Resource
from remuda.kube.web import Handler, Request, Response

if TYPE_CHECKING:
    from remuda.apiserver.http.connection import Connection


class ConnectingRegistry(RegistryInterface, Protocol):
    """Registry whose subresources may also answer with a stream (logs)."""

    def connect(self, call: Call, query: Mapping[str, str]) -> AsyncIterator[bytes]: ...


class Authenticate(Protocol):
    def __call__(self, peer_certificate: bytes | None, headers: Headers, /) -> User:
        """Authenticate a request. Raise 401 for invalid credentials; a request without credentials is anonymous."""


class Impersonate(Protocol):
    def __call__(self, user: User, headers: Headers, request: Attributes, /) -> User:
        """Return the user that `user` impersonates, for a request with Impersonate-* headers. Raises 403."""


class BuildOpenApi(Protocol):
    def __call__(self, resources: Sequence[Resource], /) -> dict[str, Any]:
        """Return the OpenAPI 3 document of one group-version."""


class ConnectionOwner(Protocol):
    """The listener that owns a connection, as the connection uses it."""

    handler: Handler
    limits: HttpLimits
    draining: bool
    loop: asyncio.AbstractEventLoop

    @property
    def idle_timeout(self) -> float: ...

    def opened(self, connection: Connection) -> bool: ...

    def closed(self, connection: Connection) -> None: ...

    def date_header(self) -> bytes: ...

    def failed(self, request: Request, error: BaseException) -> Response: ...

    def timed_out(self, request: Request) -> Response: ...


class HeaderView(Mapping[str, Sequence[str]]):
    """Headers of a request by lower-case name, each with all its values. Values are copied only when they are read."""

    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        self._request = request

    def __getitem__(self, name: str) -> Sequence[str]:
        values = self._request.header_values(name.encode("latin-1", "replace"))
        if not values:
            raise KeyError(name)
        return values

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.encode("latin-1", "replace") in self._request.headers

    def get(self, name: str, default: Any = None) -> Any:
        values = self._request.header_values(name.encode("latin-1", "replace"))
        return values or default

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._request.headers)

    def __len__(self) -> int:
        return len(self._request.headers)


def asks_to_impersonate(request: Request) -> bool:
    return any(name[:12] == b"impersonate-" for name in request.headers)
