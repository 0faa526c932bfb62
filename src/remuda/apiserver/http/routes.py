"""Request info read from method, path and query alone: verb, group, version, resource, name.

    /api/{version}/...                      the core group
    /apis/{group}/{version}/...             every other group
    .../{resource}[/{name}[/{subresource}...]]
    .../namespaces/{namespace}/{resource}[/{name}[/{subresource}...]]
    .../watch/...                           the old way to request a watch

Anything shorter, or elsewhere, is a non-resource path with the lower-case method as its verb.
"""

from __future__ import annotations

import msgspec

from remuda.apiserver.auth.user import Attributes
from remuda.kube.web import Request

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

# Subresources of a namespace itself: /namespaces/x/status is not the resource "status" in namespace x.
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class RequestInfo(msgspec.Struct):
    verb: str
    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""  # path after the subresource, for subresources that forward one
    old_watch: bool = False


def request_info(request: Request) -> RequestInfo:
    path = request.path
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        return _resource_info(request, "", parts, 1)
    if parts[0] == "apis" and len(parts) >= 4:
        return _resource_info(request, parts[1], parts, 2)
    return RequestInfo(request.method.lower(), path)


def attributes_of(info: RequestInfo) -> Attributes:
    """Return the attributes of the request that the authoriser decides on."""
    if not info.is_resource:
        return Attributes(verb=info.verb, path=info.path)
    return Attributes(
        verb=info.verb,
        group=info.group,
        version=info.version,
        resource=info.resource,
        subresource=info.subresource,
        namespace=info.namespace,
        name=info.name,
    )


def _resource_info(request: Request, group: str, parts: list[str], at: int) -> RequestInfo:
    info = RequestInfo(_VERBS.get(request.method, ""), request.path, True, group, parts[at])
    parts = parts[at + 1 :]
    if parts[0] == "watch" and len(parts) > 1:
        info.verb = "watch"
        info.old_watch = True
        parts = parts[1:]
    if parts[0] == "namespaces" and len(parts) > 1:
        info.namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
    info.resource = parts[0]
    if len(parts) > 1:
        info.name = parts[1]
    if len(parts) > 2:
        info.subresource = parts[2]
        if len(parts) > 3:
            info.rest = "/".join(parts[3:])
    if not info.name:
        _verb_of_collection(request, info)
    return info


def _verb_of_collection(request: Request, info: RequestInfo) -> None:
    if info.verb == "get":
        watched = request.query.get("watch")
        info.verb = "watch" if watched and is_true(watched[0]) else "list"
    elif info.verb == "delete":
        info.verb = "deletecollection"


def is_true(value: str) -> bool:
    """Parse a boolean of the query: only `0` and `false` are false, so a bare `?watch` is true."""
    return value != "0" and value.lower() != "false"
