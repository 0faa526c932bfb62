"""Filter for the headers of requests to a cluster and of its responses, and the impersonation headers.

Three sorts are never forwarded: headers of one connection only, credentials of the caller (meant for us, not for the
cluster), and claims of the caller about its own identity. A caller that asks to impersonate another user is denied,
rather than served under its own name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from remuda.access.interfaces import Caller
from remuda.kube.errors import StatusError, bad_request
from remuda.kube.http.identity import impersonation_headers
from remuda.kube.kubeconfig import Impersonation
from remuda.kube.web import Request

Header = tuple[str, str]

AUTHENTICATED = "system:authenticated"

# Protocols that a connection may be upgraded to. The proxy ignores requests for others, as a server may.
_UPGRADES = frozenset({"websocket", "spdy/3.1"})

_OF_A_CONNECTION = frozenset(
    {
        *("connection", "http2-settings", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
_SET_BY_US = frozenset({"audit-id", "content-length", "expect", "host"})
_OF_THE_CALLER = frozenset({"authorization", "cookie", "cookie2", "forwarded", "via", "x-real-ip"})
# An API server behind an authenticating proxy reads the user from X-Remote-*.
_CLAIMS = ("impersonate-", "x-forwarded-", "x-original-", "x-remote-", "x-rewrite-")
# A cookie would be sent to all clusters, because they share the host name of the manager.
_NOT_BACK = frozenset({"audit-id", "content-length", "date", "set-cookie", "set-cookie2"})

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Browsers cannot set Authorization for a WebSocket, so they send a bearer token as one of its sub-protocols.
_TOKEN_IN_PROTOCOLS = "base64url.bearer.authorization.k8s.io."  # noqa: S105 - what stands before one


def of(request: Request) -> list[Header]:
    """Return all headers, with names in lower case."""
    return [
        (name.decode("latin-1"), value.decode("utf-8", "replace"))
        for name, value in (*request.headers.items(), *request.repeated)
    ]


def onward(headers: Sequence[Header]) -> list[Header]:
    """Return the headers that are forwarded to the cluster. Raises a StatusError for those that are not supported."""
    named = _named_by_connection(headers)
    kept = []
    for name, value in headers:
        if name.startswith("impersonate-"):
            raise StatusError(403, "Forbidden", "impersonation (Impersonate-* headers) is not supported by this proxy")
        if not _TOKEN.fullmatch(name) or _CONTROL.search(value):
            raise bad_request("a header contains invalid characters")
        if name in _OF_A_CONNECTION or name in _SET_BY_US or name in _OF_THE_CALLER or name in named:
            continue
        if name.startswith(_CLAIMS):
            continue
        if name == "sec-websocket-protocol":
            value = _without_tokens(value)
            if not value:
                continue
        kept.append((name, value))
    return kept


def back(headers: Iterable[Header]) -> list[Header]:
    """Return the headers of a response that are sent back to the caller."""
    all_of_them = [(name, value) for name, value in headers]
    named = _named_by_connection([(name.lower(), value) for name, value in all_of_them])
    return [
        (name, value)
        for name, value in all_of_them
        if not (name.lower() in _OF_A_CONNECTION or name.lower() in _NOT_BACK or name.lower() in named)
        and not _CONTROL.search(value)
    ]


def caller_headers(caller: Caller) -> list[Header]:
    """Return the impersonation headers of the caller. Raises a StatusError for a caller without a name.

    Without impersonation the request would be made as the manager itself, which may do everything.
    """
    if not caller.name:
        raise StatusError(401, "Unauthorized", "Unauthorized")
    groups = tuple(dict.fromkeys((*caller.groups, AUTHENTICATED)))
    said = impersonation_headers(Impersonation(user=caller.name, uid=caller.uid, groups=groups, extra=caller.extra))
    if any(_CONTROL.search(value) or not value.strip() for _, value in said):
        raise StatusError(403, "Forbidden", "a name, group or extra of the caller cannot be sent as a header")
    return said


def upgrade_of(request: Request) -> str:
    """Return the protocol the connection is to be upgraded to, as the caller writes it; empty: it stays HTTP."""
    if request.leftover is None:
        return ""
    wanted = request.header_values(b"upgrade")
    return wanted[0].strip() if len(wanted) == 1 and wanted[0].strip().lower() in _UPGRADES else ""


def _named_by_connection(headers: Sequence[Header]) -> frozenset[str]:
    return frozenset(
        token.strip().lower() for name, value in headers if name == "connection" for token in value.split(",")
    )


def _without_tokens(value: str) -> str:
    protocols = [protocol.strip() for protocol in value.split(",")]
    return ", ".join(protocol for protocol in protocols if not protocol.startswith(_TOKEN_IN_PROTOCOLS))
