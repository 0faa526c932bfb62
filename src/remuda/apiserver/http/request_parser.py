"""Request parser: the callbacks of the HTTP parser, and the limits on a request's head.

It stores only the head that is being read, and passes each complete head and each piece of the body to the connection.
Any invalid input raises `Malformed` at worst.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import httptools

from remuda.apiserver import ApiServerError
from remuda.apiserver.http.limits import HttpLimits
from remuda.kube.web import Request

if TYPE_CHECKING:
    from remuda.apiserver.http.connection import Connection

log = logging.getLogger(__name__)


class Malformed(ApiServerError):
    """Request that could not be parsed, with the HTTP status that rejects it."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class UnknownMethod(ApiServerError):
    """Request line with a method that the parser does not know."""


class RequestReader:
    """Reading half of one connection."""

    __slots__ = (
        "_chunk_size",
        "_connection",
        "_head_bytes",
        "_headers",
        "_limits",
        "_parser",
        "_repeated",
        "_url",
        "in_head",
    )

    def __init__(self, connection: Connection, limits: HttpLimits) -> None:
        self._connection = connection
        self._limits = limits
        self._parser: Any = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._chunk_size = 0
        self.in_head = False

    def feed(self, data: bytes) -> bytes | None:
        """Parse more bytes. Return the bytes after an upgrade request, which are no longer HTTP; else None."""
        self._chunk_size = len(data)
        leftover = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserInvalidMethodError:
            raise UnknownMethod from None
        except httptools.HttpParserUpgrade as upgrade:
            leftover = data[upgrade.args[0] :]
        except httptools.HttpParserCallbackError as error:
            raise _refusal(error.__context__) from None
        except httptools.HttpParserError:
            raise Malformed(400) from None
        if self.in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.head_bytes:
                raise Malformed(431)
        return leftover

    def start_over(self) -> None:
        self._parser = httptools.HttpRequestParser(self)

    def close(self) -> None:
        """Break the reference cycle with the parser, so that a lost connection does not wait for the cycle
        collector.
        """
        self._parser = None

    # -- the parser's side ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.in_head = True
        self._head_bytes = 0
        self._url = b""
        self._headers = {}
        self._repeated = []
        self._connection.head_begins()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in self._headers:
            self._repeated.append((name, value))
            if len(self._repeated) > self._limits.header_count:
                raise Malformed(431)
        else:
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        self.in_head = False
        headers, limits = self._headers, self._limits
        if len(headers) > limits.header_count:
            raise Malformed(431)
        # The last chunk may hold a body too, so the head itself is measured, but only where the sum exceeds the limit.
        if self._head_bytes + self._chunk_size > limits.head_bytes and self._measured_head() > limits.head_bytes:
            raise Malformed(431)
        parser = self._parser
        request = Request(self._connection, parser.get_method().decode(), self._url.decode("latin-1"), headers)
        if self._repeated:
            request.repeated = self._repeated
        request.keep_alive = parser.should_keep_alive()
        request.http_1_0 = parser.get_http_version() == "1.0"
        if b"host" not in headers and not request.http_1_0:
            raise Malformed(400)
        if b"transfer-encoding" not in headers:
            request.content_length = int(headers.get(b"content-length", 0))
        self._connection.head_complete(request)

    def _measured_head(self) -> int:
        lines = [*self._headers.items(), *self._repeated]
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in lines)

    def on_body(self, data: bytes) -> None:
        self._connection.body_arrives(data)

    def on_message_complete(self) -> None:
        self._connection.message_complete()


def _refusal(cause: BaseException | None) -> Malformed:
    if isinstance(cause, Malformed):
        return Malformed(cause.status)
    log.error("cannot read a request: internal error", exc_info=cause)
    return Malformed(400)
