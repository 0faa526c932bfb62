"""Heads of HTTP requests: the parser's bounds, routes, options of the query, media types, impersonation."""

from __future__ import annotations

from typing import cast

from remuda.apiserver.auth.impersonate import wanted_user
from remuda.apiserver.http import negotiate, options
from remuda.apiserver.http.connection import Connection
from remuda.apiserver.http.limits import HttpLimits
from remuda.apiserver.http.request_parser import Malformed, RequestReader, UnknownMethod
from remuda.apiserver.http.routes import attributes_of, request_info
from remuda.kube.errors import StatusError
from remuda.kube.web import Request
from tests.fuzz.source import Source

_LIMITS = HttpLimits(head_bytes=8 * 1024, header_count=32)
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "get", "BREW")
_PARTS = (
    *(
        "/",
        "/api",
        "/apis",
        "/v1",
        "/namespaces",
        "/default",
        "/pods",
        "/watch",
        "/status",
        "/apps",
        "//",
        "/..",
        "%2e",
    ),
    *(
        "%2F",
        "%",
        "?",
        "&",
        "=",
        "watch=1",
        "labelSelector=",
        "a%3Db",
        "fieldSelector=metadata.name%3Dx",
        "limit=",
        "-1",
    ),
    *(
        "continue=",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ",
        "resourceVersion=",
        "18446744073709551616",
        "timeoutSeconds=",
        "dryRun=",
    ),
    *(
        "All",
        "fieldManager=",
        "propagationPolicy=Orphan",
        "gracePeriodSeconds=",
        "resourceVersionMatch=Exact",
        "force=true",
    ),
)
_HEADERS = (
    *(
        "Host: a",
        "Content-Length: 3",
        "Content-Length: -1",
        "Transfer-Encoding: chunked",
        "Accept: application/json;as=Table",
    ),
    *("Accept: */*;q=x", "Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "Content-Type: "),
    *(
        "Impersonate-User: a",
        "Impersonate-Group: b",
        "Impersonate-Extra-a%2fb: c",
        "Impersonate-Extra-%ff: d",
        "Expect: x",
    ),
    *("Impersonate-Uid: u", "Connection: close, x", "Upgrade: websocket", "Authorization: Bearer ", "X: " + "y" * 9000),
)


class _Connection:
    """Stands for the connection that a reader tells of its requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.body = 0

    def head_begins(self) -> None:
        pass

    def head_complete(self, request: Request) -> None:
        self.requests.append(request)

    def body_arrives(self, data: bytes) -> None:
        self.body += len(data)

    def message_complete(self) -> None:
        pass


def check(data: bytes) -> None:
    """Raise if bytes are neither read as requests nor refused, or a request is neither understood nor refused."""
    source = Source(data)
    pieces, raw = 1 + source.byte(), source.rest() if source.flag() else _request(source)
    connection = _Connection()
    reader = RequestReader(cast(Connection, connection), _LIMITS)
    try:
        for at in range(0, len(raw), pieces * 16):
            if reader.feed(raw[at : at + pieces * 16]) is not None:
                break
    except (Malformed, UnknownMethod):
        pass
    finally:
        reader.close()
    assert connection.body <= len(raw)
    for request in connection.requests:
        assert len(request.target) <= _LIMITS.head_bytes + pieces * 16
        _understand(request)


def _request(source: Source) -> bytes:
    target = "".join(source.pick(_PARTS) for _ in range(source.byte() % 24)) + source.text(8)
    lines = [source.pick(_HEADERS) + source.text(8) for _ in range(source.byte() % 12)]
    head = "\r\n".join([f"{source.pick(_METHODS)} {target} HTTP/1.1", "Host: a", *lines, "", ""])
    return head.encode("utf-8", "replace") + source.rest()


def _understand(request: Request) -> None:
    headers = {name.decode("latin-1"): [value.decode("latin-1")] for name, value in request.headers.items()}
    for read in (
        lambda: attributes_of(request_info(request)),
        lambda: options.list_options(request),
        lambda: options.watch_options(request),
        lambda: options.write_options(request, "CreateOptions"),
        lambda: options.patch_options(request, "apply"),
        lambda: options.delete_options(request, b""),
        lambda: negotiate.negotiate(request),
        lambda: negotiate.negotiate_stream(request),
        lambda: negotiate.body_media_type(request, (negotiate.JSON, negotiate.YAML)),
        lambda: negotiate.patch_kind(request, strategic=True),
        lambda: wanted_user(headers),
    ):
        try:
            read()
        except StatusError as error:
            assert error.code < 500, error
