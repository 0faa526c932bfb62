"""Documents as kubectl reads them: by path, by group-version-kind, by reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from remuda.apiserver.kinds import builtin_resources
from remuda.apiserver.resource import Resource, ScalePaths, Subresource
from remuda.apiserver.schema.openapi import openapi_v3
from remuda.apiserver.schema.parse import parse_crd_schema
from remuda.kube.schema import OBJECT_META, Schema

MACHINE_PROPS = {
    "type": "object",
    "description": "A machine.",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "string", "enum": ["s", "m"], "default": "s", "title": "Size", "nullable": True},
                "count": {"x-kubernetes-int-or-string": True},
                "disks": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
                },
                "tags": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
                "plain": {"type": "array", "items": {"type": "string"}},
                "any": {"x-kubernetes-preserve-unknown-fields": True, "type": "object"},
                "template": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            },
            "x-kubernetes-validations": [{"rule": "self.size != ''", "message": "no"}],
        }
    },
}


def machines() -> Resource:
    schema, errors = parse_crd_schema(MACHINE_PROPS, path="x")
    assert errors == []
    return Resource(
        group="cluster.x-k8s.io",
        version="v1beta2",
        kind="Machine",
        plural="machines",
        schema=schema,
        custom=True,
        has_status=True,
        scale=ScalePaths(spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas")),
    )


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def check_references(document: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known


def test_openapi_v3_describes_custom_resource() -> None:
    document = openapi_v3([machines()])
    check_references(document)
    schemas = document["components"]["schemas"]
    machine = schemas["io.x-k8s.cluster.v1beta2.Machine"]
    gvk = {"group": "cluster.x-k8s.io", "version": "v1beta2", "kind": "Machine"}
    assert machine["x-kubernetes-group-version-kind"] == [gvk]
    assert machine["description"] == "A machine."
    meta_ref = {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    assert machine["properties"]["metadata"]["allOf"] == [meta_ref]
    spec = machine["properties"]["spec"]
    fields = spec["properties"]
    assert spec["required"] == ["size"]
    assert spec["x-kubernetes-validations"] == [{"rule": "self.size != ''", "message": "no"}]
    size = {"type": "string", "enum": ["s", "m"], "default": "s", "title": "Size", "nullable": True}
    assert fields["size"] == size
    assert fields["count"] == {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
    }
    assert fields["disks"]["x-kubernetes-list-map-keys"] == ["name"]
    assert fields["tags"]["x-kubernetes-list-type"] == "atomic"
    assert "x-kubernetes-list-type" not in fields["plain"]
    assert fields["any"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert sorted(fields["template"]["required"]) == ["apiVersion", "kind"]
    assert fields["labels"]["additionalProperties"] == {"type": "string"}
    listed = schemas["io.x-k8s.cluster.v1beta2.MachineList"]
    assert listed["x-kubernetes-group-version-kind"] == [{**gvk, "kind": "MachineList"}]


def test_openapi_v3_paths_contain_operations_used_by_kubectl() -> None:
    paths = openapi_v3([machines()])["paths"]
    base = "/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/machines"
    assert {"/apis/cluster.x-k8s.io/v1beta2/machines", base, f"{base}/{{name}}"} <= set(paths)
    assert {f"{base}/{{name}}/status", f"{base}/{{name}}/scale"} <= set(paths)
    patch = paths[f"{base}/{{name}}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {
        "group": "cluster.x-k8s.io",
        "version": "v1beta2",
        "kind": "Machine",
    }
    assert "fieldValidation" in [p["name"] for p in patch["parameters"] if p["in"] == "query"]
    assert set(paths[base]) == {"get", "post", "delete", "parameters"}
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    operations = [o for path in paths.values() for method, o in path.items() if method != "parameters"]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)


def test_built_in_types_are_components_even_when_cyclic() -> None:
    node = Schema(type="object", ref="io.k8s.api.core.v1.Node", description="The type.")
    node.properties = {
        "metadata": OBJECT_META,
        "child": Schema(type="object", ref=node.ref, properties=node.properties, description="The field."),
        "children": Schema(
            type="array", items=node, list_type="map", list_map_keys=("x",), patch_strategy=("merge", "retainKeys")
        ),
        "size": Schema(preserve_unknown=True, ref="Quantity"),
        "at": Schema(type="string", format="date-time", nullable=True, ref="Time"),
    }
    resource = Resource(
        group="",
        version="v1",
        kind="Node",
        plural="nodes",
        schema=node,
        namespaced=False,
        verbs=("get", "list"),
        subresources={"log": Subresource(kind="Node", verbs=("get",))},
    )
    document = openapi_v3([resource])
    check_references(document)
    msgspec.json.encode(document)
    schemas = document["components"]["schemas"]
    shown = schemas["io.k8s.api.core.v1.Node"]
    assert shown["description"] == "The type."
    ref = {"$ref": "#/components/schemas/io.k8s.api.core.v1.Node"}
    assert shown["properties"]["child"] == {"description": "The field.", "allOf": [ref]}
    children = shown["properties"]["children"]
    assert (children["items"], children["x-kubernetes-patch-strategy"]) == (ref, "merge,retainKeys")
    assert schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"] == {
        "oneOf": [{"type": "string"}, {"type": "number"}]
    }
    assert schemas["io.k8s.apimachinery.pkg.apis.meta.v1.Time"] == {"type": "string", "format": "date-time"}
    assert set(document["paths"]) == {"/api/v1/nodes", "/api/v1/nodes/{name}", "/api/v1/nodes/{name}/log"}
    assert set(document["paths"]["/api/v1/nodes/{name}"]) == {"get", "parameters"}


def test_openapi_v3_type_does_not_inherit_field_description() -> None:
    inner = Schema(type="object", ref="io.k8s.api.x.v1.Inner", description="Of the field.")
    schema = Schema(type="object", ref="io.k8s.api.x.v1.Outer", properties={"inner": inner})
    resource = Resource(group="x.k8s.io", version="v1", kind="Outer", plural="outers", schema=schema)
    schemas = openapi_v3([resource])["components"]["schemas"]
    assert "description" not in schemas["io.k8s.api.x.v1.Inner"]
    assert schemas["io.k8s.api.x.v1.Outer"]["properties"]["inner"]["description"] == "Of the field."


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("pods/{name}/binding", "io.k8s.api.core.v1.Binding"),
        ("pods/{name}/eviction", "io.k8s.api.policy.v1.Eviction"),
        ("serviceaccounts/{name}/token", "io.k8s.api.authentication.v1.TokenRequest"),
    ],
)
def test_openapi_v3_subresource_uses_its_own_kind(path: str, kind: str) -> None:
    document = openapi_v3([one for one in builtin_resources() if one.api_version == "v1"])
    posted = document["paths"][f"/api/v1/namespaces/{{namespace}}/{path}"]["post"]
    assert posted["requestBody"]["content"]["*/*"]["schema"] == {"$ref": f"#/components/schemas/{kind}"}
    used = posted["x-kubernetes-group-version-kind"]
    assert document["components"]["schemas"][kind]["x-kubernetes-group-version-kind"] == [used]
