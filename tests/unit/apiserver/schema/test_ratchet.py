"""What was already wrong may stay, as long as it stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.cel.rules import compile_rules
from tests.unit.apiserver.schema.helpers import an_object, complaints, structural

NAMED: dict[str, Any] = {"type": "string", "maxLength": 1}
LIST_MAP: dict[str, Any] = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
    "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": NAMED}},
}


@pytest.mark.parametrize(
    ("schema", "old", "new", "fields"),
    [
        ({"type": "object", "properties": {"a": NAMED}}, {"a": "long"}, {"a": "long"}, []),
        ({"type": "object", "properties": {"a": NAMED}}, {"a": "long"}, {"a": "longer"}, ["spec.a"]),
        ({"type": "object", "properties": {"a": NAMED}}, {}, {"a": "long"}, ["spec.a"]),
        ({"type": "object", "additionalProperties": NAMED}, {"a": "long"}, {"a": "long", "b": "x"}, []),
        # items of a list-map are found by their keys
        (LIST_MAP, [{"k": "1", "v": "long"}], [{"k": "2"}, {"k": "1", "v": "long"}], []),
        (LIST_MAP, [{"k": "1", "v": "long"}], [{"k": "2", "v": "long"}], ["spec[0].v"]),
        # an atomic list is one value
        ({"type": "array", "items": NAMED}, ["long"], ["long"], []),
        ({"type": "array", "items": NAMED}, ["long"], ["long", "x"], ["spec[0]"]),
        # true is not 1
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": 1}, {"a": True}, ["spec.a"]),
        # a missing field is a fault of its parent
        (
            {"type": "object", "required": ["a"], "properties": {"a": NAMED, "b": NAMED}},
            {"b": "x"},
            {"b": "x"},
            [],
        ),
        (
            {"type": "object", "required": ["a"], "properties": {"a": NAMED, "b": NAMED}},
            {"b": "x"},
            {"b": "y"},
            ["spec.a"],
        ),
    ],
)
def test_ratcheting_validates_only_changed_values(
    schema: dict[str, Any], old: Any, new: Any, fields: list[str]
) -> None:
    assert [said.partition(":")[0] for said in complaints(schema, new, old)] == fields


def test_ratcheting_tolerates_duplicates_only_if_old_list_had_duplicates() -> None:
    items = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
    assert complaints(items, ["a", "a"], ["b", "b"]) == []
    assert complaints(items, ["a", "a"], ["a"]) == ['spec[1]: Duplicate value: "a"']


def test_ratcheted_rule_violation_produces_warning_on_every_write() -> None:
    small = {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 10", "message": "small only"}]}
    validator = structural({"type": "object", "properties": {"size": small, "other": {"type": "string"}}})
    validator.rules, _ = compile_rules(validator.schema, "")

    def warned(size: int, revision: str) -> list[str]:
        old = an_object({"size": size, "other": "a"}, metadata={"name": "x", "resourceVersion": revision})
        warnings: list[str] = []
        assert validator.validate(an_object({"size": size, "other": "b"}), old, warnings) == []
        return warnings

    assert warned(50, "7") == ["spec.size: Invalid value: 50: small only"]
    assert warned(50, "7") != []
    assert warned(5, "8") == []
    validator.remember(8)
    validator.remember(9, replaced=8)
    assert warned(50, "9") == []  # what is known to keep the rules is not tried again
    assert warned(50, "8") != []
