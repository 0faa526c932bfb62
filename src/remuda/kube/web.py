"""HTTP types for handlers: one request, and as result a response, a stream or an upgrade.

This is the narrow adapter between the wire and everything behind it: handlers know nothing of sockets or of the HTTP
library. A handler is a plain function. It answers at once where it can (reads are served from memory, so most do),
which saves a task per request, or returns an awaitable.

Headers are looked up by lower-case bytes. Response headers travel as one rendered block, so that a block used a
thousand times a second is rendered once; `header_block` is the only place that renders, and it rejects line breaks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qs, unquote

from remuda.kube import KubeError
from remuda.kube.errors import bad_request

MAX_BODY = 3 * 1024 * 1024  # the limit of the real API server

Headers = dict[bytes, bytes]
Query = dict[str, list[str]]

_NO_QUERY: Query = {}


class Peer(Protocol):
    """Connection that a request came in on."""

    @property
    def certificate(self) -> bytes | None:
        """Return the client's verified certificate (DER), or None."""

    @property
    def address(self) -> str:
        """Return host:port of the peer."""

    async def read_body(self, request: Request, limit: int) -> bytes: ...


class Request:
    """Request. `target` is raw; `path` is decoded; `query` keeps every value of a repeated key."""

    __slots__ = (
        "_query",
        "body_complete",
        "chunks",
        "content_length",
        "headers",
        "http_1_0",
        "keep_alive",
        "leftover",
        "method",
        "path",
        "peer",
        "raw_query",
        "received",
        "repeated",
        "target",
        "unhurried",
    )

    def __init__(self, peer: Peer, method: str, target: str, headers: Headers) -> None:
        self.peer = peer
        self.method = method
        self.target = target
        self.headers = headers
        self.repeated: list[tuple[bytes, bytes]] = []  # second and later values of a header sent more than once
        path, _, self.raw_query = target.partition("?")
        if not path.startswith("/"):
            path = _path_of_absolute(path)
        self.path = unquote(path, errors="replace") if "%" in path else path
        self._query: Query | None = None if self.raw_query else _NO_QUERY
        # Set by a handler before it returns an awaitable that has its own limits, or needs none.
        self.unhurried = False
        # Filled by the connection while the body arrives:
        self.keep_alive = True
        self.http_1_0 = False
        self.content_length: int | None = None  # None: chunked
        self.body_complete = False
        self.received = 0
        self.chunks: list[bytes] = []
        self.leftover: bytes | None = None  # bytes after an upgrade request

    @property
    def query(self) -> Query:
        if self._query is None:
            try:
                self._query = parse_qs(self.raw_query, keep_blank_values=True, max_num_fields=1000, errors="replace")
            except ValueError:
                raise bad_request("the query has too many parameters") from None
        return self._query

    def first(self, key: str) -> str:
        values = self.query.get(key)
        return values[0] if values else ""

    def header(self, name: bytes) -> str:
        """Return the first value of a header, or an empty string."""
        value = self.headers.get(name)
        return value.decode("latin-1") if value else ""

    def header_values(self, name: bytes) -> list[str]:
        """Return every value of a header that may be repeated, in order."""
        first = self.headers.get(name)
        if first is None:
            return []
        return [first.decode("latin-1"), *(v.decode("latin-1") for n, v in self.repeated if n == name)]

    async def body(self, limit: int = MAX_BODY) -> bytes:
        """Return the whole body. Raise a 413 StatusError as soon as it is known to exceed `limit`."""
        return await self.peer.read_body(self, limit)


def _path_of_absolute(target: str) -> str:
    """Return the path of a proxy's `GET http://host/path`; other targets that are no path (`*`, `host:port`) stay
    unchanged.
    """
    _, separator, rest = target.partition("://")
    if not separator:
        return target
    slash = rest.find("/")
    return rest[slash:] if slash >= 0 else "/"


class Response:
    """Whole answer. `headers` is a rendered block; the connection adds Date, Content-Length and Connection."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes = b"", headers: bytes = b"") -> None:
        self.status = status
        self.body = body
        self.headers = headers


class Sink(Protocol):
    """Writer that a stream sends its chunks to.

    Each write is one chunk; `drain` applies the back-pressure of a slow reader.
    """

    def write(self, data: bytes) -> None: ...

    def write_chunk(self, chunk: bytes) -> None:
        """Write a chunk from `frame_chunk`, which many streams may share."""

    def write_chunks(self, chunks: Sequence[bytes]) -> None:
        """Write several such chunks at once."""

    async def drain(self) -> None:
        """Return when the client has read enough of the written data."""


class CutShort(KubeError):
    """Source of a stream that ended early, where the stream itself cannot report an error.

    The connection is cut, so that the response does not look complete.
    """


class Stream:
    """An answer without a known end: `produce` writes to the sink until it returns.

    It is cancelled when the client goes away, and when `ends_after` seconds have passed or the server stops: then the
    answer still ends properly, with its last chunk."""

    __slots__ = ("ends_after", "headers", "produce", "status")

    def __init__(
        self, produce: Callable[[Sink], Awaitable[None]], headers: bytes = b"", status: int = 200, ends_after: float = 0
    ) -> None:
        self.produce = produce
        self.headers = headers
        self.status = status
        self.ends_after = ends_after


class Upgrade:
    """101, after which the connection speaks another protocol.

    `accept` is called with the transport and what the client already sent; from then on every byte and event of the
    connection goes to the protocol object it returns."""

    __slots__ = ("accept", "headers")

    def __init__(self, accept: Callable[[object, bytes], object], headers: bytes) -> None:
        self.accept = accept
        self.headers = headers


Result = Response | Stream | Upgrade
Handler = Callable[[Request], "Result | Awaitable[Result]"]

STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


def header_block(headers: Iterable[tuple[str, str]]) -> bytes:
    """Rendered header lines. A value with a line break would let its author write headers of his own: refused."""
    lines = []
    for name, value in headers:
        if "\r" in value or "\n" in value or "\0" in value:
            raise ValueError(f"line break in the value of header {name}")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("utf-8", "replace")


TEXT_HEADERS = header_block([("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")])


def text(status: int, body: str) -> Response:
    return Response(status, body.encode(), TEXT_HEADERS)


def frame_chunk(data: bytes) -> bytes:
    """`data` as one chunk of a chunked answer."""
    return b"%x\r\n%b\r\n" % (len(data), data)
