"""What apiextensions/v1 says of a CRD's schema."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.schema.parse import parse_crd_schema
from remuda.kube.schema import OBJECT_META
from tests.unit.apiserver.schema.helpers import PATH, schema_complaints

S: dict[str, Any] = {"type": "string"}
KEYS = "x-kubernetes-list-map-keys"
LIST_TYPE = "x-kubernetes-list-type"
STRUCTURAL = "to be structural"


def listed(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def list_map(items: Any, *keys: str) -> dict[str, Any]:
    return listed(items, **{LIST_TYPE: "map", KEYS: list(keys)})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, [".type: Required value: must not be empty for specified object fields"]),
        (listed({}), [".items.type: Required value: must not be empty for specified array items"]),
        ({"type": "array"}, [".items: Required value: must be specified"]),
        (
            {"type": "text"},
            [
                '.type: Unsupported value: "text": supported values: '
                '"array", "boolean", "integer", "number", "object", "string"'
            ],
        ),
        ({"type": "string", "anyOf": [{"type": "string"}]}, [f".anyOf[0].type: Forbidden: must be empty {STRUCTURAL}"]),
        ({**S, "allOf": [{"default": "x"}]}, [f".allOf[0].default: Forbidden: must be undefined {STRUCTURAL}"]),
        ({**S, "not": {"nullable": True}}, [f".not.nullable: Forbidden: must be false {STRUCTURAL}"]),
        ({**S, "oneOf": [{"description": "x"}]}, [f".oneOf[0].description: Forbidden: must be empty {STRUCTURAL}"]),
        (
            {"type": "object", "anyOf": [{"additionalProperties": {"minLength": 1}}]},
            [f".anyOf[0].additionalProperties: Forbidden: must be undefined {STRUCTURAL}"],
        ),
        (
            {"type": "object", "properties": {"a": S}, "additionalProperties": S},
            [".additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
        ),
        (
            {**S, "x-kubernetes-preserve-unknown-fields": False},
            [".x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"],
        ),
        (
            {"type": "string", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
            ['.type: Invalid value: "string": must be object if x-kubernetes-embedded-resource is true'],
        ),
        (
            {"type": "object", "x-kubernetes-embedded-resource": True},
            [
                ".properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without "
                "x-kubernetes-preserve-unknown-fields"
            ],
        ),
        (
            {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True},
            [
                ".x-kubernetes-preserve-unknown-fields: Invalid value: true: "
                "must be false if x-kubernetes-int-or-string is true"
            ],
        ),
        (
            {**S, "pattern": "[a"},
            [
                '.pattern: Invalid value: "[a": must be a valid regular expression, but isn\'t: '
                "error parsing regexp: missing closing ]: `[a`"
            ],
        ),
        (
            list_map({"type": "object", "properties": {"k": S}}, "k"),
            [
                f".items.properties[k].default: Required value: this property is in {KEYS}, "
                "so it must have a default or be a required property"
            ],
        ),
        (
            list_map({"type": "object", "properties": {"k": {"type": "object"}}, "required": ["k"]}, "k"),
            [
                '.items.properties[k].type: Invalid value: "object": '
                "must be a scalar type if parent array's x-kubernetes-list-type is map"
            ],
        ),
        (
            list_map({"type": "object", "properties": {"k": S}, "required": ["k"]}, "x"),
            [f'.{KEYS}: Invalid value: ["x"]: entries must all be names of item properties'],
        ),
        (
            list_map({"type": "object", "properties": {"k": S}, "required": ["k"]}),
            [f".{KEYS}: Required value: must not be empty if x-kubernetes-list-type is map"],
        ),
        (
            listed(S, **{KEYS: ["k"]}),
            [f".{LIST_TYPE}: Required value: must be map if {KEYS} is non-empty"],
        ),
        (
            listed({"type": "object"}, **{LIST_TYPE: "set"}),
            [
                ".items.x-kubernetes-map-type: Invalid value: null: "
                "must be atomic as item of a list with x-kubernetes-list-type=set"
            ],
        ),
        (
            {**S, LIST_TYPE: "set"},
            ['.type: Invalid value: "string": must be array if x-kubernetes-list-type is specified'],
        ),
        (
            {"type": "object", "x-kubernetes-map-type": "loose"},
            ['.x-kubernetes-map-type: Unsupported value: "loose": supported values: "atomic", "granular"'],
        ),
        (
            listed(S, uniqueItems=True),
            [
                ".uniqueItems: Forbidden: uniqueItems cannot be set to true "
                "since the runtime complexity becomes quadratic"
            ],
        ),
        ({**S, "$ref": "#/x"}, [".$ref: Forbidden: $ref is not supported"]),
        ({"type": "array", "items": [S]}, [".items: Forbidden: items must be a schema object and not an array"]),
        ({**S, "default": 5}, ['.default: Invalid value: "integer":  in body must be of type string: "integer"']),
        (
            {"type": "object", "properties": {"a": S}, "default": {"b": 1}},
            ['.default: Invalid value: {"b":1}: must not have unknown fields'],
        ),
        (
            {**S, "x-kubernetes-validations": [{"rule": " "}]},
            [".x-kubernetes-validations[0].rule: Required value: rule is not specified"],
        ),
        (
            {"type": "object", "properties": {"a": S}, "x-kubernetes-validations": [{"rule": "x", "fieldPath": ".b"}]},
            ['.x-kubernetes-validations[0].fieldPath: Invalid value: ".b": must be a valid path'],
        ),
    ],
)
def test_invalid_crd_schema_is_reported(spec: dict[str, Any], said: list[str]) -> None:
    assert schema_complaints(spec) == said


@pytest.mark.parametrize(
    "spec",
    [
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        {
            "x-kubernetes-int-or-string": True,
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "^a"}],
        },
        {"x-kubernetes-preserve-unknown-fields": True},
        {
            "type": "object",
            "properties": {"a": S},
            "oneOf": [{"required": ["a"]}, {"properties": {"a": {"maxLength": 1}}}],
        },
        {**S, "format": "made-up", "default": "x"},
        list_map({"type": "object", "properties": {"k": {**S, "default": ""}}}, "k"),
        {"type": "object", "properties": {"a": S}, "x-kubernetes-validations": [{"rule": "x", "fieldPath": ".a"}]},
    ],
)
def test_valid_crd_schema_is_accepted(spec: dict[str, Any]) -> None:
    assert schema_complaints(spec) == []


@pytest.mark.parametrize(
    ("root", "said"),
    [
        ({"type": "string"}, ['.type: Invalid value: "string": must be object at the root']),
        (
            {"anyOf": [{"properties": {"a": {"minLength": 1}}}]},
            [".properties[a]: Required value: because it is defined in .anyOf[0].properties[a]"],
        ),
        ({"nullable": True}, [".nullable: Forbidden: nullable cannot be true at the root"]),
        ({"additionalProperties": True}, [".additionalProperties: Forbidden: must not be used at the root"]),
        (
            {"properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}},
            [
                ".properties[metadata]: Forbidden: must not specify anything other than name and generateName, "
                "but metadata is implicitly specified"
            ],
        ),
        (
            {"properties": {"kind": {"type": "integer"}}},
            ['.properties[kind].type: Invalid value: "integer": must be string'],
        ),
        (
            {"properties": {"kind": {"type": "string", "default": "x"}}},
            [".properties[kind].default: Forbidden: must not be set in top-level kind"],
        ),
    ],
)
def test_invalid_crd_schema_root_is_reported(root: dict[str, Any], said: list[str]) -> None:
    assert schema_complaints(S, **root) == said


def test_status_subresource_restricts_root_schema_fields() -> None:
    _, errors = parse_crd_schema({"type": "object", "minProperties": 1}, path=PATH, has_status=True)
    assert [e.path for e in errors] == [PATH]
    assert "fields are allowed at the root of the schema if the status subresource is enabled" in errors[0].detail
    assert parse_crd_schema({"type": "object", "required": ["spec"]}, path=PATH, has_status=True)[1] == []


def test_crd_schema_root_gets_type_and_object_meta() -> None:
    schema, errors = parse_crd_schema({"type": "object", "properties": {"metadata": {"type": "object"}}}, path=PATH)
    assert errors == []
    assert list(schema.properties) == ["apiVersion", "kind", "metadata"]
    assert schema.properties["metadata"] is OBJECT_META


def test_too_deep_crd_schema_is_rejected() -> None:
    props: dict[str, Any] = {"type": "string"}
    for _ in range(50_000):
        props = {"type": "object", "properties": {"a": props}}
    _, errors = parse_crd_schema(props, path=PATH)
    assert [e.detail for e in errors] == ["exceeded max depth"]


@pytest.mark.parametrize(
    "props", [{}, {"type": 5}, {"properties": 5}, {"type": "object", "properties": {"a": 5}, "anyOf": 1}]
)
def test_malformed_crd_schema_does_not_crash_the_parser(props: dict[str, Any]) -> None:
    parse_crd_schema(props, path=PATH)
