"""Type facts of one schema node, in the form that both walkers need."""

from __future__ import annotations

import math
from typing import Any

from remuda.apiserver.schema.formats import string_format
from remuda.kube.schema import Schema

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
EXACT_IN_A_FLOAT = (1 << 53) - 1
FLOAT32_MAX = 3.4028234663852886e38

# Attributes in which a node keeps its compiled check (`fast_path`): for built-in types, and for types of a CRD.
QUICK_NATIVE, QUICK_CUSTOM = "_quick_native", "_quick_custom"

_NUMBER_FORMATS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def types_of(schema: Schema) -> tuple[str, ...]:
    """Return the allowed JSON types; an empty result allows any."""
    if schema.int_or_string:
        return ("integer", "string")
    return (schema.type,) if schema.type else ()


def enforced_format(schema: Schema) -> str:
    """Return the format if this server knows it for the type. Other formats are only documentation."""
    if not schema.format:
        return ""
    kind = "" if schema.int_or_string else schema.type
    if kind in ("", "string"):
        return schema.format if string_format(schema.format) else ""
    return schema.format if schema.format in _NUMBER_FORMATS.get(kind, ()) else ""


def describes(additional: Schema | None) -> bool:
    """Return whether a map's values have a schema; `additionalProperties: true` and `false` are no schemas."""
    return additional is not None and bool(
        additional.type or additional.int_or_string or additional.preserve_unknown or additional.ref
    )


def is_integral(value: float) -> bool:
    """Return whether a float represents an integer exactly, so that 1.0 may be given for 1."""
    return math.isfinite(value) and value.is_integer() and abs(value) <= EXACT_IN_A_FLOAT


def is_unique(values: list[Any]) -> bool:
    """Return whether no two items are equal. 1, 1.0 and true are different items."""
    seen = {identity(value) for value in values}
    return len(seen) == len(values)


def identity(value: Any) -> Any:
    """Return a hashable key that is equal for two values exactly if Go considers them deeply equal."""
    if isinstance(value, dict):
        return ("{", frozenset((k, identity(v)) for k, v in value.items()))
    if isinstance(value, list):
        return ("[", tuple(identity(v) for v in value))
    return (type(value), value)
