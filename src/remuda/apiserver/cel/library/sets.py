"""Lists taken as sets: sets.contains, sets.equivalent, sets.intersects."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.cel import cost
from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.library.collections import in_list

LIBRARY = Library()


def _contains(items: list[Any], wanted: list[Any]) -> bool:
    return all(in_list(item, items) for item in wanted)


def _equivalent(a: list[Any], b: list[Any]) -> bool:
    return _contains(a, b) and _contains(b, a)


def _intersects(a: list[Any], b: list[Any]) -> bool:
    return any(in_list(item, b) for item in a)


LIBRARY.function("sets.contains(list(T), list(T)): bool", _contains, id="sets_contains", cost=cost.of_product(1))
LIBRARY.function("sets.equivalent(list(T), list(T)): bool", _equivalent, id="sets_equivalent", cost=cost.of_product(2))
LIBRARY.function("sets.intersects(list(T), list(T)): bool", _intersects, id="sets_intersects", cost=cost.of_product(1))
