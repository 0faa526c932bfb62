"""Decoded JSON as Go prints it. Some of the real server's messages contain values and types in Go's own notation."""

from __future__ import annotations

from typing import Any

_TYPES = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    type(None): "%!s(<nil>)",
}
_JSON_TYPES = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def go_type(value: Any) -> str:
    return _TYPES[type(value)]


def json_type(value: Any) -> str:
    """The word of Go's decoder for what it found: `cannot unmarshal object into ...`."""
    return _JSON_TYPES.get(type(value), "null")


def go_value(value: Any) -> str:
    """As `%v` prints it: maps sorted by key, no quotes."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_value(item)}" for key, item in sorted(value.items())) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)
