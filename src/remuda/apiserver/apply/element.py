"""Path elements: the keys of a FieldsV1 document, stored as the strings of the document.

`f:name` is a field, `k:{"name":"x"}` an item of a list-map by its keys, `v:"x"` an item of a set by its value, `i:0` an
item by its index. Two elements are the same exactly when their strings are, so a string must be canonical: names of
keys sorted, no blanks, scalars as Go prints them (`<`, `>` and `&` escaped, integral floats without a fraction).
Elements from outside pass through `canonical` first; everything built here already is.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

import msgspec

from remuda.kube.go_text import quoted

_needs_escape = re.compile('["\\\\<>&\x00-\x1f\u2028\u2029]').search
_ESCAPES = {
    "\\": "\\\\",  # first, because the other replacements add backslashes
    **{char: f"\\u{ord(char):04x}" for char in ("<", ">", "&", *map(chr, range(0x20)), "\u2028", "\u2029")},
    '"': '\\"',
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_CACHED_ELEMENT = 256  # longer ones are parsed each time, so that the cache does not keep them alive
_EXPONENT_BELOW, _EXPONENT_FROM = 1e-6, 1e21


class BadElement(ValueError):
    """Key of a FieldsV1 document that is no path element."""


class UnknownElement(ValueError):
    """Key of a type that this version does not know. Such keys are dropped, not rejected."""


def _escaped(text: str) -> str:
    """Escape one type of character after the other, because a text may have megabytes of them."""
    for char, escape in _ESCAPES.items():
        if char in text:
            text = text.replace(char, escape)
    return text


def scalar_json(value: Any) -> str:
    """Encode one value as it appears inside an element."""
    if type(value) is str:
        return f'"{value}"' if _needs_escape(value) is None else f'"{_escaped(value)}"'
    if type(value) is int:
        return str(value)
    if value is True or value is False:
        return "true" if value else "false"
    if value is None:
        return "null"
    if type(value) is float:
        return _float_json(value)
    return msgspec.json.encode(value, order="sorted").decode()


def _float_json(value: float) -> str:
    size = abs(value)
    if size and (size < _EXPONENT_BELOW or size >= _EXPONENT_FROM):
        mantissa, _, exponent = repr(value).partition("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent):+03d}" if exponent else mantissa
    if value.is_integer():
        return str(int(value))
    text = repr(value)
    return text if "e" not in text else f"{value:.20f}".rstrip("0")


def key_element(fields: dict[str, Any]) -> str:
    parts = ",".join(f"{scalar_json(name)}:{scalar_json(fields[name])}" for name in sorted(fields))
    return f"k:{{{parts}}}"


def value_element(value: Any) -> str:
    return "v:" + scalar_json(value)


def _parse(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadElement(str(error)) from None


def content(element: str) -> Any:
    """Return the part of a path element after its colon: a name, a mapping of keys, a value or an index."""
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return text
    if kind == "v:":
        return _parse(text)
    if kind == "k:":
        keys = _parse(text)
        if not isinstance(keys, dict):
            raise BadElement(f"expected an object: {element}")
        return keys
    if kind == "i:":
        try:
            return int(text)
        except ValueError:
            raise BadElement(f"invalid index: {element}") from None
    if len(element) < 2:
        raise BadElement("key must be 2 characters long:")
    if element[1] != ":":
        raise BadElement(f"missing colon: {element}")
    raise UnknownElement(element)


def canonical(element: str) -> str:
    """Return the canonical form of an element from outside."""
    if element.startswith("f:"):
        return element
    return _canonical_cached(element) if len(element) <= _CACHED_ELEMENT else _canonical(element)


def _canonical(element: str) -> str:
    parsed = content(element)
    if element[0] == "k":
        return key_element(parsed)
    return value_element(parsed) if element[0] == "v" else f"i:{parsed}"


_canonical_cached = lru_cache(maxsize=4096)(_canonical)


def _value_order(value: Any) -> tuple[int, Any]:
    """Return the sort key of values of mixed types: numbers, then strings, booleans, lists, maps, null."""
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value if not isinstance(value, float) or not math.isnan(value) else 0)
    if isinstance(value, str):
        return (1, value)
    if isinstance(value, list):
        return (3, tuple(_value_order(item) for item in value))
    if isinstance(value, dict):
        return (4, _key_order(value))
    return (5, 0)


def _key_order(keys: dict[str, Any]) -> tuple[Any, ...]:
    return tuple((name, _value_order(keys[name])) for name in sorted(keys))


def _order(element: str) -> tuple[int, Any]:
    if element == ".":
        return (-1, 0)
    parsed = content(element)
    if element[0] == "f":
        return (0, parsed)
    if element[0] == "k":
        return (1, _key_order(parsed))
    return (2, _value_order(parsed)) if element[0] == "v" else (3, parsed)


_order_cached = lru_cache(maxsize=8192)(_order)


def sort(elements: list[str]) -> None:
    """Sort elements as in a document: the element itself, fields, keys, values, indices."""
    elements.sort(key=_order_cached if max(map(len, elements)) <= _CACHED_ELEMENT else _order)


def _shown_value(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ",".join(_shown_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "".join(f"{key}={_shown_value(item)}" for key, item in value.items())
    return scalar_json(value)


def shown(element: str) -> str:
    """Return an element as messages show it: `.spec`, `[name="x"]`, `[="x"]`, `[0]`."""
    parsed = content(element)
    if element[0] == "f":
        return f".{parsed}"
    if element[0] == "k":
        return "[" + ",".join(f"{name}={_shown_value(parsed[name])}" for name in sorted(parsed)) + "]"
    return f"[={_shown_value(parsed)}]" if element[0] == "v" else f"[{parsed}]"
