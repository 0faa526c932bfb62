"""Functions `size`, `in` and indexing, for strings, bytes, lists and maps."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.cel import cost
from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.values import (
    INT_MAX,
    INT_MIN,
    NONE,
    CelError,
    Optional,
    Uint,
    equal,
    find,
    from_key,
    type_name,
)

LIBRARY = Library()
_ABSENT = object()


def in_list(value: Any, items: list[Any]) -> bool:
    if type(value) is str:
        return value in items
    return any(equal(value, item) for item in items)


def in_map(key: Any, mapping: dict[Any, Any]) -> bool:
    return find(mapping, key, _ABSENT) is not _ABSENT


LIBRARY.function("@in(A, list(A)): bool", in_list, id="in_list", cost=cost.of_second_items)
LIBRARY.function("@in(A, map(A, B)): bool", in_map, id="in_map")


def _position(index: Any) -> int:
    """Return an index into a list: a whole number of any numeric type."""
    kind = type(index)
    if kind is int or kind is Uint:
        return int(index)
    if kind is float:
        if index.is_integer() and INT_MIN <= index <= INT_MAX:
            return int(index)
        raise CelError(f"unsupported index value {index} in list")
    raise CelError(f"unsupported index type '{type_name(index)}' in list")


def list_item(items: list[Any], index: Any) -> Any:
    position = index if type(index) is int else _position(index)
    if 0 <= position < len(items):
        return items[position]
    raise CelError(f"index out of bounds: {position}")


def map_item(mapping: dict[Any, Any], key: Any) -> Any:
    found = find(mapping, key, _ABSENT)
    if found is _ABSENT:
        raise no_such_key(key)
    return found


def no_such_key(key: Any) -> CelError:
    return CelError(f"no such key: {str(key).lower() if type(key) is bool else key}")


def item(container: Any, key: Any) -> Any:
    """Return container[key] for any container. An optional container gives an optional item."""
    if type(container) is list:
        return list_item(container, key)
    if type(container) is dict:
        return map_item(container, key)
    if type(container) is Optional:
        return NONE if container is NONE else optional_item(container.value, key)
    raise no_such_key(key)


def optional_item(container: Any, key: Any) -> Optional:
    if type(container) is Optional:
        return NONE if container is NONE else optional_item(container.value, key)
    if type(container) is list:
        position = _position(key)
        return Optional(container[position]) if 0 <= position < len(container) else NONE
    if type(container) is dict:
        found = find(container, key, _ABSENT)
        return NONE if found is _ABSENT else Optional(found)
    raise no_such_key(key)


LIBRARY.function("_[_](list(A), int): A", item, id="index_list")
LIBRARY.function("_[_](map(A, B), A): B", item, id="index_map")
LIBRARY.function("_[_](optional(list(A)), int): optional(A)", item)
LIBRARY.function("_[_](optional(map(A, B)), A): optional(B)", item)
LIBRARY.function("_[?_](list(A), int): optional(A)", optional_item)
LIBRARY.function("_[?_](optional(list(A)), int): optional(A)", optional_item)
LIBRARY.function("_[?_](map(A, B), A): optional(B)", optional_item)
LIBRARY.function("_[?_](optional(map(A, B)), A): optional(B)", optional_item)

for _sized in ("bytes", "list(A)", "map(A, B)", "string"):
    LIBRARY.function(f"size({_sized}): int", len)
    LIBRARY.method(f"{_sized}.size(): int", len)


def items_of(source: Any) -> list[Any]:
    """Return the values that a loop with one variable runs over: items of a list, or keys of a map."""
    if type(source) is list:
        return source
    if type(source) is dict:
        return [from_key(key) for key in source]
    raise not_iterable(source)


def pairs_of(source: Any) -> list[tuple[Any, Any]]:
    """Return the pairs that a loop with two variables runs over: index and item, or key and value."""
    if type(source) is list:
        return list(enumerate(source))
    if type(source) is dict:
        return [(from_key(key), value) for key, value in source.items()]
    raise not_iterable(source)


_GO_NAMES = {"int": "Int", "uint": "Uint", "double": "Double", "bool": "Bool", "string": "String", "bytes": "Bytes"}


def not_iterable(source: Any) -> CelError:
    name = type_name(source)
    return CelError(f"got 'types.{_GO_NAMES.get(name, name)}', expected iterable type")
