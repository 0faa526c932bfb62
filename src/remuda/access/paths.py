"""Parser of request targets: finds the cluster that a request is for, and what it asks there.

The target is checked as it was received, before decoding, and forwarded exactly so: a path that the next reader could
understand differently (dots, doubled, escaped or backward slashes, escapes of escapes) is rejected. The query is
forwarded unchanged and read only for `watch`; it may hold secrets.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qs, unquote_to_bytes

from remuda.access.interfaces import PREFIX
from remuda.kube.errors import StatusError, bad_request
from remuda.kube.names import dns1123_label

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_PATH = re.compile(r"(?:/(?:[A-Za-z0-9\-._~!$&'()*+,=:@]|%[0-9A-Fa-f]{2})*)*")
_QUERY = re.compile(r"[!-\"$-~]*")  # printable characters, except the one that starts a fragment
_ESCAPED_ESCAPE = re.compile(r"%25[0-9A-Fa-f]{2}")
_NEVER = frozenset(b"/\\;\x7f") | frozenset(range(0x20))  # characters that must not be escaped

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
_OPEN_ENDED = frozenset({"attach", "exec", "log", "portforward", "proxy"})  # subresources


class ClusterRequest(NamedTuple):
    cluster: str  # an id
    path: str
    query: str

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path


class RequestVerb(NamedTuple):
    """Verb of a request, in Kubernetes' terms. `open_ended`: the response may take as long as there is nothing to
    send."""

    verb: str
    open_ended: bool = False


def judge(method: str, target: str) -> ClusterRequest:
    """Parse a request target. Raises a StatusError that names the fault."""
    if method not in METHODS:
        raise StatusError(405, "MethodNotAllowed", f"the Kubernetes API does not support the method {method}")
    path, _, query = target.partition("?")
    if not path.startswith(PREFIX):
        raise bad_request(f"the path must begin with {PREFIX}, without escapes and without a host")
    cluster, slash, rest = path[len(PREFIX) :].partition("/")
    if dns1123_label(cluster):
        raise bad_request(f"{PREFIX} must be followed by a cluster id: letters, digits and dashes")
    if not _QUERY.fullmatch(query):
        raise bad_request("the query has characters that must be escaped")
    path = slash + rest or "/"
    wrong = _wrong_with(path)
    if wrong:
        raise bad_request(f"the path {wrong}, so it is ambiguous")
    return ClusterRequest(cluster, path, query)


def _wrong_with(path: str) -> str:
    if not _PATH.fullmatch(path):
        return "has characters that must be escaped, or a bad escape"
    if "//" in path:
        return "has doubled slashes"
    if "%" in path:
        if _ESCAPED_ESCAPE.search(path):
            return "has escapes of escapes"
        # Plain slashes are removed first, so that each one found here was escaped.
        if not _NEVER.isdisjoint(unquote_to_bytes(path.replace("/", ""))):
            return "has escapes of slashes, semicolons or control characters"
    if any(unquote_to_bytes(segment) in (b".", b"..") for segment in path.split("/")):
        return "has . or .. in it"
    return ""


def asked(method: str, wanted: ClusterRequest) -> RequestVerb:
    """Return the verb of a request, and whether it is open-ended. For a non-resource path, the verb is the method."""
    parts = unquote_to_bytes(wanted.path).decode("utf-8", "replace").strip("/").split("/")
    prefix = {"api": 2, "apis": 3}.get(parts[0], len(parts))
    rest = parts[prefix:]
    if not rest:
        return RequestVerb(method.lower())
    verb = _VERBS.get(method, method.lower())
    if rest[0] == "watch" and len(rest) > 1:  # the old way to ask for one
        return RequestVerb("watch", True)
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
        rest = rest[2:]
    if len(rest) > 1:  # one object
        return RequestVerb(verb, len(rest) > 2 and rest[2] in _OPEN_ENDED)
    if verb == "get":
        return RequestVerb("watch", True) if _asks_to_watch(wanted.query) else RequestVerb("list")
    return RequestVerb("deletecollection" if verb == "delete" else verb)


def _asks_to_watch(query: str) -> bool:
    """Read the parameter `watch` as the API server reads booleans: a bare `?watch` is true."""
    if "watch" not in query:
        return False
    try:
        values = parse_qs(query, keep_blank_values=True, max_num_fields=1000).get("watch", ["0"])
    except ValueError:
        return False
    return values[0] != "0" and values[0].lower() != "false"
