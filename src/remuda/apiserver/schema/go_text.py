"""Text of values as Go prints and names them, as far as messages that people grep for depend on it.

Only rendering lives here. Values are decoded JSON: dict, list, str, bool, int, float or None.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec


def number(value: int | float) -> str:
    """Go's %v of an int64 or float64."""
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    mantissa, exponent_mark, exponent = text.partition("e")
    if not exponent_mark:
        return text
    return f"{mantissa.removesuffix('.0')}e{exponent}"


def json_text(value: Any) -> str:
    """encoding/json of a value: keys sorted, no spaces."""
    return msgspec.json.encode(value, order="sorted").decode()


def json_type(value: Any) -> str:
    """The JSON schema word for a value."""
    return _JSON_TYPES[type(value)]


_JSON_TYPES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def decoder_word(value: Any) -> str:
    """Return the word that Go's JSON decoder uses for a value it could not store."""
    kind = type(value)
    if kind is bool:
        return "bool"
    if kind is int or kind is float:
        return "number"
    return _JSON_TYPES[kind]
