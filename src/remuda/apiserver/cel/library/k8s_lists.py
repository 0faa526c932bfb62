"""List methods of Kubernetes: isSorted, sum, min, max, indexOf, lastIndexOf."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.cel import cost
from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.values import (
    CelError,
    Duration,
    Uint,
    checked_duration,
    checked_int,
    checked_uint,
    compare,
    equal,
)

LIBRARY = Library()

COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")


def _is_sorted(items: list[Any]) -> bool:
    return all(compare(items[at], items[at + 1]) <= 0 for at in range(len(items) - 1))


def _smallest(items: list[Any]) -> Any:
    return _best(items, "min", 1)


def _largest(items: list[Any]) -> Any:
    return _best(items, "max", -1)


def _best(items: list[Any], name: str, worse: int) -> Any:
    if not items:
        raise CelError(f"{name} called on empty list")
    best = items[0]
    for item in items[1:]:
        if compare(best, item) == worse:
            best = item
    return best


def _sum_ints(items: list[int]) -> int:
    total = 0
    for item in items:
        total = checked_int(total + item)
    return total


def _sum_uints(items: list[int]) -> Uint:
    total = Uint(0)
    for item in items:
        total = checked_uint(int(total) + int(item))
    return total


def _sum_doubles(items: list[float]) -> float:
    total = 0.0
    for item in items:
        total += item
    return total


def _sum_durations(items: list[Duration]) -> Duration:
    total = Duration(0)
    for item in items:
        total = checked_duration(total.ns + item.ns)
    return total


def _index_of(items: list[Any], wanted: Any) -> int:
    return next((at for at, item in enumerate(items) if equal(item, wanted)), -1)


def _last_index_of(items: list[Any], wanted: Any) -> int:
    return next((at for at in range(len(items) - 1, -1, -1) if equal(items[at], wanted)), -1)


for _kind in COMPARABLE:
    LIBRARY.method(f"list({_kind}).isSorted(): bool", _is_sorted, cost=cost.of_traversal)
    LIBRARY.method(f"list({_kind}).min(): {_kind}", _smallest, cost=cost.of_traversal)
    LIBRARY.method(f"list({_kind}).max(): {_kind}", _largest, cost=cost.of_traversal)
LIBRARY.method("list(int).sum(): int", _sum_ints, cost=cost.of_traversal)
LIBRARY.method("list(uint).sum(): uint", _sum_uints, cost=cost.of_traversal)
LIBRARY.method("list(double).sum(): double", _sum_doubles, cost=cost.of_traversal)
LIBRARY.method("list(duration).sum(): duration", _sum_durations, cost=cost.of_traversal)
LIBRARY.method("list(A).indexOf(A): int", _index_of, cost=cost.of_traversal)
LIBRARY.method("list(A).lastIndexOf(A): int", _last_index_of, cost=cost.of_traversal)
