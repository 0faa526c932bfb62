"""Functions that return new lists (slice, flatten, sort, reverse, distinct, ranges of numbers), and functions that
treat lists as sets (sets.contains, sets.equivalent, sets.intersects).

A call fails before it builds a list that is larger than the cost limit of an expression allows.
"""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

from remuda.apiserver.cel import cost
from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.library.collections import in_list
from remuda.apiserver.cel.library.k8s_lists import COMPARABLE
from remuda.apiserver.cel.values import CelError, CostExceeded, compare, equal, size_of

LIBRARY = Library()


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    what = f"cannot slice({start}, {end}),"
    if start < 0 or end < 0:
        raise CelError(f"{what} negative indexes not supported")
    if start > end:
        raise CelError(f"{what} start index must be less than or equal to end index")
    if len(items) < end:
        raise CelError(f"{what} list is length {len(items)}")
    return items[start:end]


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    while depth > 0 and any(type(item) is list for item in items):
        items = [part for item in items for part in (item if type(item) is list else (item,))]
        depth -= 1
    return items


def _cost_of_flatten(args: tuple[Any, ...], result: Any) -> int:
    depth = args[1] if len(args) == 2 else 1
    return size_of(args[0]) * max(depth, 0) + 1 + cost.LIST_BASE


def _sort(items: list[Any]) -> list[Any]:
    return _sort_by_keys(items, items)


def _sort_by_keys(items: list[Any], keys: list[Any]) -> list[Any]:
    if keys and any(type(key) is not type(keys[0]) for key in keys):
        raise CelError("list elements must have the same type")
    in_order = cmp_to_key(compare)
    order = sorted(range(len(keys)), key=lambda at: in_order(keys[at]))
    return [items[at] for at in order]


def _range(count: int) -> list[int]:
    if count > cost.PER_CALL_LIMIT:
        raise CostExceeded
    return list(range(count))


def _reverse(items: list[Any]) -> list[Any]:
    return items[::-1]


def _distinct(items: list[Any]) -> list[Any]:
    if len(items) * len(items) > cost.PER_CALL_LIMIT:
        raise CostExceeded
    unique: list[Any] = []
    for item in items:
        if not any(equal(item, known) for known in unique):
            unique.append(item)
    return unique


def _contains(items: list[Any], wanted: list[Any]) -> bool:
    return all(in_list(item, items) for item in wanted)


def _equivalent(a: list[Any], b: list[Any]) -> bool:
    return _contains(a, b) and _contains(b, a)


def _intersects(a: list[Any], b: list[Any]) -> bool:
    return any(in_list(item, b) for item in a)


LIBRARY.method("list(T).slice(int, int): list(T)", _slice, id="list_slice", cost=cost.of_result_list)
LIBRARY.method("list(list(T)).flatten(): list(T)", _flatten, id="list_flatten", cost=_cost_of_flatten)
LIBRARY.method("list(dyn).flatten(int): list(dyn)", _flatten, id="list_flatten_int", cost=_cost_of_flatten)
for _kind in COMPARABLE:
    LIBRARY.method(f"list({_kind}).sort(): list({_kind})", _sort, id=f"list_{_kind}_sort", cost=cost.of_all_pairs(0))
    LIBRARY.method(
        f"list(T).@sortByAssociatedKeys(list({_kind})): list(T)",
        _sort_by_keys,
        id=f"list_{_kind}_sort_by",
        cost=cost.of_all_pairs(1),
    )
LIBRARY.function("lists.range(int): list(int)", _range, id="lists_range", cost=cost.of_result_list)
LIBRARY.method("list(T).reverse(): list(T)", _reverse, id="list_reverse", cost=cost.of_result_list)
LIBRARY.method("list(T).distinct(): list(T)", _distinct, id="list_distinct", cost=cost.of_all_pairs(0))
LIBRARY.function("sets.contains(list(T), list(T)): bool", _contains, id="sets_contains", cost=cost.of_product(1))
LIBRARY.function("sets.equivalent(list(T), list(T)): bool", _equivalent, id="sets_equivalent", cost=cost.of_product(2))
LIBRARY.function("sets.intersects(list(T), list(T)): bool", _intersects, id="sets_intersects", cost=cost.of_product(1))
