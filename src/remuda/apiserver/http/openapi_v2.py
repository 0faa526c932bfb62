"""`/openapi/v2`, for clients that still need it: if a kind is not in the v3 index, kubectl checks here whether the
server validates fields. The document lists every kind's PATCH with the query parameters that matter for that, and no
schemas: those are at `/openapi/v3`. Go clients take it only as protobuf (gnostic's encoding).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from remuda.apiserver.http.answers import audit_header
from remuda.apiserver.registry.calls import ServedResources
from remuda.apiserver.resource import Resource
from remuda.kube.web import Request, Response, header_block

PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")
_INFO = {
    "title": "Kubernetes",
    "version": "v1",
    "description": "Kinds and the parameters of their PATCH. Schemas are at /openapi/v3.",
}


def as_json(resources: Iterable[Resource]) -> bytes:
    paths = {path: {"patch": _operation(resource)} for path, resource in _patched(resources)}
    return msgspec.json.encode({"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": {}})


def as_protobuf(resources: Iterable[Resource]) -> bytes:
    items = b"".join(
        _field(2, _text(1, path) + _field(2, _field(8, _protobuf_operation(resource))))
        for path, resource in _patched(resources)
    )
    info = _text(1, _INFO["title"]) + _text(2, _INFO["version"]) + _text(3, _INFO["description"])
    return _text(1, "2.0") + _field(2, info) + _field(8, items)


def _patched(resources: Iterable[Resource]) -> Iterable[tuple[str, Resource]]:
    for resource in resources:
        if "patch" in resource.verbs:
            root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
            scope = "/namespaces/{namespace}" if resource.namespaced else ""
            yield f"{root}{scope}/{resource.plural}/{{name}}", resource


def _kind(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "kind": resource.kind, "version": resource.version}


def _operation(resource: Resource) -> dict[str, Any]:
    parameters = [{"name": name, "in": "query", "type": "string"} for name in _PARAMETERS]
    return {"parameters": parameters, "x-kubernetes-group-version-kind": _kind(resource), "responses": {}}


def _protobuf_operation(resource: Resource) -> bytes:
    kind = "".join(f"{key}: {value}\n" if value else f'{key}: ""\n' for key, value in _kind(resource).items())
    extension = _text(1, "x-kubernetes-group-version-kind") + _field(2, _text(2, kind))
    return _PROTOBUF_PARAMETERS + _field(13, extension)


# ---- the little of protobuf that writing this takes ------------------------------------------------------------------


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _parameter(name: str) -> bytes:
    query = _text(2, "query") + _text(4, name) + _text(6, "string")
    return _field(8, _field(1, _field(2, _field(3, query))))


_PROTOBUF_PARAMETERS = b"".join(_parameter(name) for name in _PARAMETERS)


class OpenApiV2:
    """Serves the document in both encodings, and rebuilds it when the served resources change."""

    def __init__(self, resources: ServedResources) -> None:
        self._resources = resources
        self._generation = -1
        self._made: dict[str, bytes] = {}

    def serve(self, request: Request) -> Response:
        if self._generation != self._resources.generation:
            self._generation = self._resources.generation
            self._made.clear()
        wants_protobuf = "proto-openapi" in request.header(b"accept")
        media, make = (PROTOBUF_V2, as_protobuf) if wants_protobuf else ("application/json", as_json)
        if media not in self._made:
            self._made[media] = make(self._resources.all())
        headers = [("Content-Type", media), ("Cache-Control", "no-cache, private"), ("Vary", "Accept")]
        return Response(200, self._made[media], audit_header(request) + header_block(headers))
