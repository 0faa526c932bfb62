"""The `fieldPath` of a rule: a simple JSON path below the rule's own value: `.spec.name`, `.labels['a.b']`."""

from __future__ import annotations

import re

from remuda.kube.schema import Schema


class InvalidPath(ValueError):
    """The path is malformed or leads to no field of the schema."""


_STEP = re.compile(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]", re.S)
_ESCAPE = re.compile(r"\\(.)", re.S)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def normalized(path: str, schema: Schema) -> str:
    """The path as field errors write it, without a dot at the start."""
    at = 0
    written = ""
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise InvalidPath(f"expected [ or . but got: {path[at:]}")
        name = step[1] if step[1] is not None else _ESCAPE.sub(_unescaped, step[2])
        schema, part = _entered(schema, name)
        written += part if part.startswith("[") or not written else f".{part}"
        at = step.end()
    return written


def _unescaped(match: re.Match[str]) -> str:
    if match[1] not in _ESCAPED:
        raise InvalidPath(f"invalid escape char {match[0]}")
    return _ESCAPED[match[1]]


def _entered(schema: Schema, name: str) -> tuple[Schema, str]:
    if schema.properties:
        if name not in schema.properties:
            raise InvalidPath("does not refer to a valid field")
        return schema.properties[name], name
    if schema.additional is not None:
        return schema.additional, f"[{name}]"
    raise InvalidPath("does not refer to a valid field")
