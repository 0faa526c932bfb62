"""Lists that a schema declares as sets or maps: their order does not matter, and + merges them.

`comparator` returns an equality test for values of a declared type, or None where plain equality gives the same result.
It indexes long lists, so that a comparison takes linear time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.apiserver.cel.declared import Declared
from remuda.apiserver.cel.values import equal

Same = Callable[[Any, Any], bool]


def comparator(declared: Declared) -> Same | None:
    schema = declared.schema
    if declared.type.kind == "list":
        inner = comparator(declared.item) if declared.item else None
        if schema.list_type == "set":
            return _same_set
        if schema.list_type == "map":
            return _same_by_key(schema.list_map_keys, inner or equal)
        return _same_items(inner) if inner else None
    if declared.type.kind == "map":
        inner = comparator(declared.item) if declared.item else None
        return _same_entries(lambda key: inner) if inner else None
    if declared.type.kind == "object":
        special = {field.json_name: same for field in declared.fields.values() if (same := comparator(field.declared))}
        return _same_entries(special.get) if special else None
    return None


def _same_items(same: Same) -> Same:
    return lambda a, b: len(a) == len(b) and all(map(same, a, b))


def _same_entries(special: Callable[[str], Same | None]) -> Same:
    def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
        if a.keys() != b.keys():
            return False
        return all((special(key) or equal)(value, b[key]) for key, value in a.items())

    return same


def _same_set(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and set(map(_hashable, a)) >= set(map(_hashable, b))


def _hashable(value: Any) -> Any:
    return (type(value).__name__, repr(value)) if isinstance(value, list | dict | bool) else value


def key_of(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Return the key values that identify an item of a map-type list; None for an item that is no object."""
    if type(item) is not dict:
        return None
    return tuple(_hashable(item.get(key)) for key in keys)


def _same_by_key(keys: tuple[str, ...], same_item: Same) -> Same:
    def same(a: list[Any], b: list[Any]) -> bool:
        if len(a) != len(b):
            return False
        known = {key_of(item, keys): item for item in a}
        return all(key_of(item, keys) in known and same_item(known[key_of(item, keys)], item) for item in b)

    return same


def added(declared: Declared) -> Callable[[list[Any], list[Any]], list[Any]]:
    """Return the function that implements `a + b` for lists of this declaration."""
    schema = declared.schema
    if schema.list_type == "set":
        return _union
    if schema.list_type == "map":
        return lambda a, b: _merged(a, b, schema.list_map_keys)
    return lambda a, b: a + b


def _union(a: list[Any], b: list[Any]) -> list[Any]:
    made, seen = list(a), set(map(_hashable, a))
    for item in b:
        if _hashable(item) not in seen:
            seen.add(_hashable(item))
            made.append(item)
    return made


def _merged(a: list[Any], b: list[Any], keys: tuple[str, ...]) -> list[Any]:
    made = list(a)
    position = {key_of(item, keys): at for at, item in enumerate(a)}
    for item in b:
        at = position.get(key_of(item, keys))
        if at is None:
            made.append(item)
        else:
            made[at] = item
    return made
