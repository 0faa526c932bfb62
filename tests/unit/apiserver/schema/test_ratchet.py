"""What was already wrong may stay, as long as it stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.schema.helpers import complaints

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
def test_only_changes_are_judged(schema: dict[str, Any], old: Any, new: Any, fields: list[str]) -> None:
    assert [said.partition(":")[0] for said in complaints(schema, new, old)] == fields


def test_duplicates_are_tolerated_only_where_there_were_some() -> None:
    items = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
    assert complaints(items, ["a", "a"], ["b", "b"]) == []
    assert complaints(items, ["a", "a"], ["a"]) == ['spec[1]: Duplicate value: "a"']
