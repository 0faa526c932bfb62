"""Nulls, defaults and unknown fields of custom resources."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.schema.depth import MAX_DEPTH
from tests.unit.apiserver.schema.helpers import an_object, structural

TEXT = {"type": "string"}


def prepared(schema: dict[str, Any], value: Any) -> tuple[Any, list[str]]:
    obj = an_object(value)
    outcome = structural(schema).prepare(obj)
    assert outcome.malformed == ""
    return obj.get("spec"), outcome.unknown


@pytest.mark.parametrize(
    ("schema", "value", "becomes"),
    [
        ({"a": {"type": "integer", "default": 3}}, {}, {"a": 3}),
        ({"a": {"type": "integer", "default": 3}}, {"a": None}, {"a": 3}),
        ({"a": {"type": "integer", "default": 3}}, {"a": 0}, {"a": 0}),
        ({"a": {"type": "integer", "default": 3, "nullable": True}}, {"a": None}, {"a": None}),
        ({"a": TEXT}, {"a": None}, {}),
        ({"a": {"type": "string", "nullable": True}}, {"a": None}, {"a": None}),
        # defaults fill what a default made, but make no parents
        (
            {"a": {"type": "object", "default": {}, "properties": {"b": {"type": "string", "default": "x"}}}},
            {},
            {"a": {"b": "x"}},
        ),
        ({"a": {"type": "object", "properties": {"b": {"type": "string", "default": "x"}}}}, {}, {}),
        (
            {
                "a": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"b": {"type": "string", "default": "x"}}},
                }
            },
            {"a": [{}, {"b": "y"}]},
            {"a": [{"b": "x"}, {"b": "y"}]},
        ),
        ({"a": {"type": "object", "additionalProperties": TEXT}}, {"a": {"k": None, "l": "x"}}, {"a": {"l": "x"}}),
        ({"a": {"type": "integer"}}, {"a": 2.0}, {"a": 2}),
    ],
)
def test_prepare_drops_nulls_and_sets_defaults(schema: dict[str, Any], value: Any, becomes: Any) -> None:
    assert prepared({"type": "object", "properties": schema}, value) == (becomes, [])


def test_defaults_are_not_shared_between_objects() -> None:
    validator = structural({"type": "object", "properties": {"a": {"type": "array", "items": TEXT, "default": ["x"]}}})
    first, second = an_object({}), an_object({})
    validator.prepare(first)
    first["spec"]["a"].append("y")
    validator.prepare(second)
    assert second["spec"] == {"a": ["x"]}


KEEPS = {"x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(
    ("schema", "value", "becomes", "unknown"),
    [
        ({"type": "object", "properties": {"a": TEXT}}, {"a": "", "b": 1}, {"a": ""}, ["spec.b"]),
        (
            {"type": "array", "items": {"type": "object", "properties": {"a": TEXT}}},
            [{"a": ""}, {"b": 1}],
            [{"a": ""}, {}],
            ["spec[1].b"],
        ),
        ({"type": "object", "additionalProperties": True}, {"a": {"b": 1}}, {"a": {}}, ["spec.a.b"]),
        (
            {"type": "object", **KEEPS, "properties": {"a": {"type": "object", "properties": {"b": TEXT}}}},
            {"a": {"b": "", "c": 1}, "d": {"e": 1}},
            {"a": {"b": ""}, "d": {"e": 1}},
            ["spec.a.c"],
        ),
    ],
)
def test_prepare_prunes_and_reports_unknown_fields(
    schema: dict[str, Any], value: Any, becomes: Any, unknown: list[str]
) -> None:
    assert prepared(schema, value) == (becomes, unknown)


def test_metadata_is_decoded_like_go() -> None:
    validator = structural(TEXT)
    obj = an_object("x")
    obj["metadata"] = {"name": "x", "creationTimestamp": None, "labels": {"a": "b", "c": None}, "other": 1}
    assert validator.prepare(obj).unknown == ["metadata.other"]
    assert obj["metadata"] == {"name": "x", "labels": {"a": "b", "c": ""}}
    obj["metadata"]["labels"] = {"a": 1}
    said = "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"
    assert validator.prepare(obj).malformed == said


def test_schema_checked_flag_requires_a_valid_pruned_object() -> None:
    validator = structural({"type": "string", "maxLength": 1})
    assert validator.prepare(an_object("a")).schema_checked
    assert not validator.prepare(an_object("ab")).schema_checked
    assert not validator.prepare(an_object("a", other=1)).schema_checked


EMBEDDED = {"type": "object", "x-kubernetes-embedded-resource": True, **KEEPS}


def test_embedded_resources_are_pruned_and_validated() -> None:
    validator = structural({"type": "object", "properties": {"t": EMBEDDED}})
    obj = an_object({"t": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}, "x": 1}, "y": 2}})
    outcome = validator.admit(obj)
    assert (outcome.unknown, outcome.errors) == (["spec.t.metadata.x"], [])
    assert obj["spec"]["t"] == {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}, "y": 2}
    assert validator.is_fine(obj)

    said = [str(e) for e in validator.admit(an_object({"t": {"kind": "a.b", "metadata": {"name": "a/b"}}})).errors]
    assert said[0] == "spec.t.apiVersion: Required value"
    assert said[1].startswith('spec.t.kind: Invalid value: "a.b": may have mixed case, but should otherwise match: ')
    assert said[2] == "spec.t.metadata.name: Invalid value: \"a/b\": may not contain '/'"

    assert validator.admit(an_object({"t": {"kind": 5}})).malformed == "spec.t.kind: Invalid value: 5: must be a string"


def test_root_schema_may_restrict_metadata_name() -> None:
    names = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}
    validator = structural(TEXT, metadata=names)
    assert validator.admit(an_object("x")).errors == []
    obj = an_object("x")
    obj["metadata"]["name"] = "much-too-long"
    assert [str(e) for e in validator.admit(obj).errors] == ["metadata.name: Too long: may not be more than 3 bytes"]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def test_too_deep_object_is_rejected_without_crashing() -> None:
    validator = structural({"type": "object", "properties": {"a": TEXT}})
    assert validator.admit(an_object(nested(100_000))).malformed == "exceeded max depth"
    assert validator.admit(an_object(nested(MAX_DEPTH - 2))).errors != []


def test_huge_numbers_are_reported_as_invalid() -> None:
    validator = structural({"type": "object", "properties": {"a": {"type": "integer", "maximum": 5}}})
    for number in (10**400, -(10**400), 10**25, float("inf"), float("nan")):
        assert validator.admit(an_object({"a": number})).errors != []
