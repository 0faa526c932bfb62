"""Copies and comparisons of decoded JSON."""

from __future__ import annotations

from typing import Any


def copy_json(value: Any) -> Any:
    """An independent copy. Several times faster than `copy.deepcopy`: JSON has no cycles and no other types."""
    kind = type(value)
    if kind is dict:
        return {key: copy_json(item) if type(item) in _CONTAINERS else item for key, item in value.items()}
    if kind is list:
        return [copy_json(item) if type(item) in _CONTAINERS else item for item in value]
    return value


_CONTAINERS = frozenset((dict, list))


def same_json(left: Any, right: Any) -> bool:
    """Equal as JSON texts: 1, 1.0 and true are three values, though Python's `==` takes them for one."""
    if type(left) is not type(right):
        return False
    if type(left) is dict:
        if len(left) != len(right):
            return False
        return all(key in right and same_json(item, right[key]) for key, item in left.items())
    if type(left) is list:
        return len(left) == len(right) and all(map(same_json, left, right))
    return bool(left == right)
