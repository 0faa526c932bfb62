"""Copies and comparisons of decoded JSON."""

from __future__ import annotations

from typing import Any

import msgspec


def copy_json(value: Any) -> Any:
    """Return an independent copy. Encoding and decoding is several times faster than copying in Python."""
    return _decode(_encode(value)) if type(value) in _CONTAINERS else value


_CONTAINERS = frozenset((dict, list))
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def same_json(left: Any, right: Any) -> bool:
    """Return whether two values are equal as JSON: 1, 1.0 and true are three values, though Python's `==` treats them
    as one.

    `==` runs first: it is many times faster, and its "different" is final. Values that it finds equal are compared as
    texts, which decides unless the order of members differs.
    """
    if left is right:
        return True
    if left != right:
        return False
    if type(left) in _CONTAINERS and type(left) is type(right) and _encode(left) == _encode(right):
        return True
    return _same_types(left, right)


def _same_types(left: Any, right: Any) -> bool:
    """Return whether two values that Python compares as equal also have equal types throughout."""
    kind = type(left)
    if kind is not type(right):
        return False
    if kind is dict:
        return all(_same_types(item, right[key]) for key, item in left.items())
    if kind is list:
        return all(map(_same_types, left, right))
    return True
