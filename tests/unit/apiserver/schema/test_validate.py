"""Each complaint, in the words of kube-openapi as apiextensions-apiserver passes them on."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.schema.validate import ERROR_LIMIT
from tests.unit.apiserver.schema.helpers import an_object, complaints, structural

NIL = '<nil>: Invalid value: ""'


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"type": "string"}, 5, 'spec: Invalid value: "integer": spec in body must be of type string: "integer"'),
        ({"type": "string"}, True, 'spec: Invalid value: "boolean": spec in body must be of type string: "boolean"'),
        ({"type": "integer"}, "x", 'spec: Invalid value: "string": spec in body must be of type integer: "string"'),
        ({"type": "integer"}, True, 'spec: Invalid value: "boolean": spec in body must be of type integer: "boolean"'),
        ({"type": "object"}, [], 'spec: Invalid value: "array": spec in body must be of type object: "array"'),
        (
            {"type": "string", "format": "date-time"},
            5,
            'spec: Invalid value: "int64": spec in body must be of type date-time: "int64"',
        ),
        (
            {"type": "integer", "format": "int32"},
            False,
            'spec: Invalid value: "": spec in body must be of type int32: ""',
        ),
        (
            {"x-kubernetes-int-or-string": True},
            True,
            'spec: Invalid value: "boolean": spec in body must be of type integer,string: "boolean"',
        ),
        (
            {"type": "string", "format": "ipv4"},
            "1.2.3",
            'spec: Invalid value: "1.2.3": spec in body must be of type ipv4: "1.2.3"',
        ),
        (
            {"type": "integer", "format": "int32"},
            2**31,
            f"{NIL}: Checked value must be of type integer with format int32 in spec",
        ),
        ({"type": "string", "maxLength": 2}, "abc", "spec: Too long: may not be more than 2 bytes"),
        ({"type": "string", "maxLength": 1}, "éé", "spec: Too long: may not be more than 1 byte"),
        (
            {"type": "string", "minLength": 2},
            "a",
            'spec: Invalid value: "a": spec in body should be at least 2 chars long',
        ),
        ({"type": "string", "pattern": "^a$"}, "b", "spec: Invalid value: \"b\": spec in body should match '^a$'"),
        ({"type": "string", "enum": ["b", "a"]}, "c", 'spec: Unsupported value: "c": supported values: "b", "a"'),
        ({"type": "integer", "enum": [2, 1]}, 3, 'spec: Unsupported value: 3: supported values: "2", "1"'),
        (
            {"type": "integer", "maximum": 5},
            6,
            "spec: Invalid value: 6: spec in body should be less than or equal to 5",
        ),
        (
            {"type": "number", "maximum": 5, "exclusiveMaximum": True},
            5.0,
            "spec: Invalid value: 5: spec in body should be less than 5",
        ),
        (
            {"type": "integer", "minimum": 5},
            4,
            "spec: Invalid value: 4: spec in body should be greater than or equal to 5",
        ),
        (
            {"type": "integer", "minimum": 5, "exclusiveMinimum": True},
            5,
            "spec: Invalid value: 5: spec in body should be greater than 5",
        ),
        ({"type": "integer", "multipleOf": 3}, 4, "spec: Invalid value: 4: spec in body should be a multiple of 3"),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 1},
            ["a", "b"],
            "spec: Too many: 2: must have at most 1 item",
        ),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 2},
            ["a"],
            "spec: Invalid value: 1: spec in body should have at least 2 items",
        ),
        (
            {"type": "array", "items": {"type": "string"}},
            ["a", None],
            'spec[1]: Invalid value: "null": spec[1] in body must be of type string: "null"',
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            {"k": 1},
            'spec.k: Invalid value: "integer": spec.k in body must be of type string: "integer"',
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1},
            {"a": "", "b": ""},
            "spec: Too many: 2: must have at most 1 item",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
            {},
            "spec: Invalid value: 0: spec in body should have at least 1 properties",
        ),
        (
            {"type": "object", "additionalProperties": False},
            {"a": ""},
            'spec: Invalid value: "a": spec.a in body is a forbidden property',
        ),
        ({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}, {}, "spec.a: Required value"),
        (
            {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            ["a", "b", "a", "a"],
            'spec[2]: Duplicate value: "a"',
        ),
        (
            {"type": "string", "not": {"enum": ["a"]}},
            "a",
            f'{NIL}: "spec" must not validate the schema (not)',
        ),
    ],
)
def test_invalid_value_error_matches_upstream(schema: dict[str, Any], value: Any, said: str) -> None:
    assert complaints(schema, value) == [said]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 1.0),
        ({"type": "number"}, 1),
        ({"type": "integer"}, 2**63 - 1),
        ({"x-kubernetes-int-or-string": True}, "5%"),
        ({"type": "string", "format": "no-such-format"}, "anything"),
        ({"type": "string", "nullable": True}, None),
        ({"type": "string", "maxLength": 2}, "éé"),
        ({"type": "string", "pattern": "b"}, "abc"),
        ({"type": "number", "enum": [1]}, 1.0),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"a": {"b": [1]}}),
    ],
)
def test_valid_value_is_accepted(schema: dict[str, Any], value: Any) -> None:
    assert complaints(schema, value) == []


def test_fraction_is_rejected_for_integer_type() -> None:
    assert complaints({"type": "integer"}, 1.5) == [
        'spec: Invalid value: "number": spec in body must be of type integer: "number"',
        f"{NIL}: Checked value must be of type integer (default format) in spec",
    ]
    assert complaints({"type": "integer", "format": "int32"}, 1.5) == [
        'spec: Invalid value: "float64": spec in body must be of type int32: "float64"',
        f"{NIL}: Checked value must be of type integer with format int32 in spec",
    ]


def test_null_is_never_in_an_enum() -> None:
    said = complaints({"type": "string", "nullable": True, "enum": ["a"]}, None)
    assert said == ['spec: Unsupported value: null: supported values: "a"']


LISTED = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name", "port"],
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "port": {"type": "integer", "default": 80}},
    },
}


def test_list_map_keys_are_compared_after_defaulting() -> None:
    said = complaints(LISTED, [{"name": "a"}, {"name": "a", "port": 81}, {"name": "a", "port": 80}])
    assert said == ['spec[2]: Duplicate value: {"name":"a","port":80}']


def test_one_of_shows_the_best_alternative() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    assert complaints(schema, {}) == [
        f'{NIL}: "spec" must validate one and only one schema (oneOf). Found none valid',
        "spec.a: Required value",
    ]
    assert complaints(schema, {"a": "", "b": ""}) == [
        f'{NIL}: "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives'
    ]
    assert complaints(schema, {"b": ""}) == []


def test_any_of_and_all_of_are_enforced() -> None:
    schema = {"type": "string", "anyOf": [{"minLength": 2}, {"pattern": "^x"}], "allOf": [{"maxLength": 3}]}
    assert complaints(schema, "x") == []
    assert complaints(schema, "a") == [
        f'{NIL}: "spec" must validate at least one schema (anyOf)',
        'spec: Invalid value: "a": spec in body should be at least 2 chars long',
    ]
    assert complaints(schema, "xxxx") == [
        "spec: Too long: may not be more than 3 bytes",
        f'{NIL}: "spec" must validate all the schemas (allOf). None validated',
    ]


def test_validation_errors_are_bounded() -> None:
    said = complaints({"type": "array", "items": {"type": "string"}}, list(range(100_000)))
    assert len(said) == ERROR_LIMIT


def test_status_validation_reports_paths_below_status() -> None:
    status = {"type": "object", "properties": {"phase": {"type": "string", "enum": ["Up"]}, "n": {"type": "integer"}}}
    validator = structural({"type": "string"}, status=status)
    obj = an_object(5, status={"phase": "Down", "n": "x"})
    assert [str(e) for e in validator.validate_status(obj, an_object("s"))] == [
        'status.phase: Unsupported value: "Down": supported values: "Up"',
        'status.n: Invalid value: "string": n in body must be of type integer: "string"',
    ]
    assert validator.validate_status(obj, an_object("s", status={"phase": "Down", "n": "x"})) == []


@pytest.mark.parametrize(
    ("limits", "value", "said"),
    [
        ({"type": "number", "multipleOf": 0.5}, 4.5, []),
        ({"type": "number", "multipleOf": 0.5}, 4, ["0: factor MultipleOf declared for spec must be positive: 0"]),
        ({"type": "number", "multipleOf": 2.5}, 4, []),  # of which an integer sees 2
        ({"type": "number", "minimum": 0.5}, 0, []),
        ({"type": "number", "minimum": 0.5}, 0.25, ["0.25: spec in body should be greater than or equal to 0.5"]),
        ({"type": "number", "maximum": 4.5}, 5, ["5: spec in body should be less than or equal to 4"]),
        (
            {"type": "integer", "maximum": 4.5},
            3,
            ['"": Maximum boundary value must be of type integer (default format) in spec'],
        ),
    ],
)
def test_integer_values_use_truncated_limits(limits: dict[str, Any], value: Any, said: list[str]) -> None:
    assert [text.partition("Invalid value: ")[2] for text in complaints(limits, value)] == said


def test_cel_rules_are_skipped_when_type_or_size_is_wrong() -> None:
    class Rules:
        def validate(self, obj: Any, old: Any, path: str, warnings: list[str] | None = None) -> list[Any]:
            calls.append((obj["spec"], old))
            return []

    calls: list[Any] = []
    validator = structural({"type": "string", "minLength": 2, "maxLength": 3})
    validator.rules = Rules()
    assert validator.admit(an_object("ab")).errors == []
    assert [e.detail for e in validator.admit(an_object("a")).errors] == [
        "spec in body should be at least 2 chars long"
    ]
    assert [spec for spec, _ in calls] == ["ab", "a"]
    said = [str(e) for e in validator.admit(an_object("abcd")).errors]
    assert said[1].startswith("<nil>: Invalid value: null: some validation rules were not checked because the object")
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("schema", "count"),
    [
        ({"type": "array", "maxItems": 2, "items": {"type": "string", "pattern": "^a"}}, 5),
        ({"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string", "pattern": "^a"}}, 5),
    ],
)
def test_values_beyond_twice_the_limit_are_not_checked(schema: dict[str, Any], count: int) -> None:
    names = [f"b{number}" for number in range(count)]
    value: Any = names if schema["type"] == "array" else dict.fromkeys(names, "b")
    found = complaints(schema, value)
    assert sum("should match" in one for one in found) == 2
    assert sum("Too many" in one for one in found) == 1


def test_single_invalid_value_in_large_list_or_map_is_found() -> None:
    item = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "pattern": "^a"}}}
    spec = {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": item},
            "map": {"type": "object", "additionalProperties": item},
        },
    }
    names = [f"a{number}" for number in range(500)]
    names[300] = "b"
    found = complaints(
        spec, {"list": [{"name": name} for name in names], "map": {name: {"name": name} for name in names}}
    )
    assert [one.partition(":")[0] for one in found] == ["spec.list[300].name", "spec.map.b.name"]
