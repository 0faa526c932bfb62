"""Interface of the listener that owns a connection, as the connection uses it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from remuda.apiserver.http.limits import Limits
from remuda.kube.web import Handler, Request, Response

if TYPE_CHECKING:
    from remuda.apiserver.http.connection import Connection


class Owner(Protocol):
    handler: Handler
    limits: Limits
    draining: bool
    loop: asyncio.AbstractEventLoop

    @property
    def idle_timeout(self) -> float: ...

    def opened(self, connection: Connection) -> bool: ...

    def closed(self, connection: Connection) -> None: ...

    def date_header(self) -> bytes: ...

    def failed(self, request: Request, error: BaseException) -> Response: ...

    def timed_out(self, request: Request) -> Response: ...
