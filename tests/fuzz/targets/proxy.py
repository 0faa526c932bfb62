"""Targets and headers of requests to the proxy of clusters."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from remuda.access import headers, paths
from remuda.access.interfaces import PREFIX, Caller
from remuda.kube.errors import StatusError
from tests.fuzz.source import Source

_PIECES = (
    *(
        "/",
        "//",
        "/.",
        "/..",
        "%2e",
        "%2E%2e",
        "%2f",
        "%5c",
        "\\",
        ";",
        "%3b",
        "%25",
        "%252e",
        "%00",
        "%0d%0a",
        "?",
        "#",
    ),
    *("api", "/v1", "/namespaces/default", "/pods", "/exec", "watch=true", "&", "http://other", "@", "c-m-abc", "é"),
)
_METHODS = (*sorted(paths.METHODS), "CONNECT", "TRACE", "get")
_NAMES = (
    *("host", "connection", "impersonate-user", "impersonate-extra-x", "authorization", "cookie", "x-forwarded-for"),
    *(
        "transfer-encoding",
        "te",
        "upgrade",
        "x-remote-user",
        "accept",
        "sec-websocket-protocol",
        "x",
        "impersonate-group",
    ),
)
_VALUES = (
    *("x", "close, impersonate-user", "authorization", "keep-alive", "a\r\nImpersonate-User: admin", "websocket", ""),
    *("base64url.bearer.authorization.k8s.io.eA, v4.channel.k8s.io", "chunked", "\x00"),
)
_NEVER = ("impersonate-", "x-forwarded-", "x-remote-", "x-original-")
_NEVER_NAMES = {"authorization", "connection", "cookie", "host", "te", "transfer-encoding", "upgrade", "content-length"}


def check(data: bytes) -> None:
    """Raise if a path could mean another one to the cluster, or a header that is ours to say goes on."""
    source = Source(data)
    if source.flag():
        _check_path(source)
    else:
        _check_headers(source)


def _check_path(source: Source) -> None:
    method = source.pick(_METHODS)
    start = PREFIX + "c-m-abc" if source.byte() % 4 else ""
    target = start + "".join(source.pick(_PIECES) for _ in range(source.byte() % 12)) + source.text(8)
    try:
        wanted = paths.judge(method, target)
    except StatusError as error:
        assert error.code in (400, 405), error
        return
    path, _, query = target.removeprefix(PREFIX + wanted.cluster).partition("?")
    assert (wanted.path, wanted.query) == (path or "/", query)
    decoded = unquote_to_bytes(wanted.path)
    assert wanted.path.startswith("/")
    assert b"//" not in decoded
    assert not {b".", b".."} & set(decoded.split(b"/"))
    assert wanted.path.count("/") == decoded.count(b"/")
    assert wanted.target.isascii()
    assert wanted.target.isprintable()
    paths.asked(method, wanted)


def _check_headers(source: Source) -> None:
    given = [(source.name(_NAMES).lower(), source.pick(_VALUES) if source.flag() else source.text()) for _ in range(8)]
    try:
        kept = headers.onward(given)
    except StatusError as error:
        assert error.code in (400, 403), error
        kept = []
    for name, value in [*kept, *headers.back(given)]:
        assert not set("\r\n\0") & set(value)
        if (name, value) in kept:
            assert name not in _NEVER_NAMES
            assert not name.startswith(_NEVER)
            assert name != "sec-websocket-protocol" or "bearer.authorization" not in value
    caller = Caller(name=source.text(), groups=tuple(source.text() for _ in range(source.byte() % 3)))
    try:
        said = headers.caller_headers(caller)
    except StatusError as error:
        assert error.code in (401, 403), error
        return
    assert ("Impersonate-User", caller.name) in said
    assert all(not set("\r\n\0") & set(value) for _, value in said)
