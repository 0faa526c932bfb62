"""The old OpenAPI document, in both encodings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from remuda.apiserver.http.openapi_v2 import PROTOBUF_V2, OpenApiV2, as_json, as_protobuf
from remuda.kube.web import Request

from .fakes import PODS, WIDGETS

PATHS = [
    "/api/v1/namespaces/{namespace}/pods/{name}",
    "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}",
]


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that has only texts and messages in it."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        assert key & 7 == 2
        size, at = varint(data, at)
        yield key >> 3, data[at : at + size]
        at += size
    assert at == len(data)


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def inside(data: bytes, *path: int) -> list[bytes]:
    """What stands at a path of field numbers, as often as it does."""
    found = [data]
    for number in path:
        found = [content for outer in found for at, content in fields(outer) if at == number]
    return found


def test_openapi_v2_json_lists_patch_operations_with_kind_and_parameters() -> None:
    document = msgspec.json.decode(as_json([PODS, WIDGETS]))
    assert (document["swagger"], list(document["paths"])) == ("2.0", PATHS)
    patch = document["paths"][PATHS[1]]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "example.com", "kind": "Widget", "version": "v1"}
    assert {p["name"] for p in patch["parameters"]} >= {"fieldValidation", "dryRun", "fieldManager"}


def test_openapi_v2_protobuf_matches_json() -> None:
    # Numbers as in gnostic's OpenAPIv2.proto: Document.paths=8, Paths.path=2, NamedPathItem.name=1 and value=2,
    # PathItem.patch=8, Operation.parameters=8 and vendor_extension=13.
    document = as_protobuf([PODS, WIDGETS])
    assert inside(document, 1) == [b"2.0"]
    assert [path.decode() for path in inside(document, 8, 2, 1)] == PATHS
    patches = inside(document, 8, 2, 2, 8)
    kinds = [msgspec.yaml.decode(kind) for patch in patches for kind in inside(patch, 13, 2, 2)]
    assert kinds == [
        {"group": "", "kind": "Pod", "version": "v1"},
        {"group": "example.com", "kind": "Widget", "version": "v1"},
    ]
    for patch in patches:
        assert b"fieldValidation" in inside(patch, 8, 1, 2, 3, 4)
        assert inside(patch, 13, 1) == [b"x-kubernetes-group-version-kind"]


def test_openapi_v2_protobuf_encodes_long_documents() -> None:
    many = [PODS] * 300
    assert len(inside(as_protobuf(many), 8, 2)) == 300


class Served:
    def __init__(self) -> None:
        self.generation = 1
        self.listed = [PODS]

    def all(self) -> list[Any]:
        return self.listed


def ask(served: OpenApiV2, accept: bytes) -> tuple[str, bytes]:
    answer = served.serve(Request(None, "GET", "/openapi/v2", {b"accept": accept}))  # type: ignore[arg-type]
    lines = dict(line.split(": ", 1) for line in answer.headers.decode().splitlines())
    return lines["Content-Type"], answer.body


def test_openapi_v2_is_cached_and_rebuilt_when_resources_change() -> None:
    resources = Served()
    served = OpenApiV2(resources)  # type: ignore[arg-type]
    assert ask(served, b"*/*") == ("application/json", as_json([PODS]))
    assert ask(served, PROTOBUF_V2.encode()) == (PROTOBUF_V2, as_protobuf([PODS]))
    resources.listed = [PODS, WIDGETS]
    assert ask(served, b"*/*")[1] == as_json([PODS])  # made once
    resources.generation += 1
    assert ask(served, b"*/*")[1] == as_json([PODS, WIDGETS])
    assert ask(served, PROTOBUF_V2.encode())[1] == as_protobuf([PODS, WIDGETS])
