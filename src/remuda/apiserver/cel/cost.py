"""Cost of CEL evaluation in CEL's units, and its limits.

One unit is about one operation. Work that grows with the data is counted by the size of the data. The numbers are part
of the API: they decide which CRDs a server accepts and which objects it rejects.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from remuda.apiserver.cel.values import size_of

# The limits and factors are upstream's: with others, this server could reject a CRD that Kubernetes accepts.
PER_CALL_LIMIT = 1_000_000  # one evaluation of one rule
OBJECT_BUDGET = 10_000_000  # all rules on one object
RULE_ESTIMATE_LIMIT = 10_000_000  # worst case of one rule, checked when a CRD is written
CRD_ESTIMATE_LIMIT = 100_000_000  # sum of the worst cases of all rules of one version
MAX_UNITS = (1 << 64) - 1

STRING_FACTOR = 0.1
REGEX_FACTOR = 0.25
LIST_BASE = 10
MAP_BASE = 30

Args = tuple[Any, ...]


# Most values are short, and every comparison of strings calls this function.
_TENTHS = tuple(ceil(size * STRING_FACTOR) for size in range(1024))


def tenth(size: int) -> int:
    return _TENTHS[size] if size < 1024 else ceil(size * STRING_FACTOR)


def of_first(args: Args, result: Any) -> int:
    """Return the cost of reading the first argument once."""
    return tenth(size_of(args[0]))


def of_first_twice(args: Args, result: Any) -> int:
    """Return the cost of reading the first argument and writing about as much."""
    return ceil(size_of(args[0]) * 2 * STRING_FACTOR)


def of_second_items(args: Args, result: Any) -> int:
    return size_of(args[1])


def of_shorter(args: Args, result: Any) -> int:
    return tenth(min(size_of(args[0]), size_of(args[1])))


def of_both(args: Args, result: Any) -> int:
    return tenth(size_of(args[0]) + size_of(args[1]))


def of_search(args: Args, result: Any) -> int:
    return tenth(size_of(args[0])) * tenth(size_of(args[1]))


def of_regex(args: Args, result: Any) -> int:
    return ceil((1 + size_of(args[0])) * STRING_FACTOR) * ceil(size_of(args[1]) * REGEX_FACTOR)


def of_traversal(args: Args, result: Any) -> int:
    return traversal(args[0])


def traversal(value: Any) -> int:
    """Return the cost of reading a whole value, including nested lists and maps."""
    if isinstance(value, str):
        return int(len(value.encode()) * STRING_FACTOR)
    if isinstance(value, bytes):
        return int(len(value) * STRING_FACTOR)
    if isinstance(value, list):
        return sum(map(traversal, value))
    if isinstance(value, dict):
        return sum(traversal(key) + traversal(inner) for key, inner in value.items())
    return 1


def of_product(factor: int) -> Callable[[Args, Any], int]:
    return lambda args, result: 1 + size_of(args[0]) * size_of(args[1]) * factor


def of_result_list(args: Args, result: Any) -> int:
    return size_of(result) + 1 + LIST_BASE


def of_all_pairs(at: int) -> Callable[[Args, Any], int]:
    """Return the cost of comparing each item of the list argument with every other."""

    def cost(args: Args, result: Any) -> int:
        items = args[at]
        factor = 2 + STRING_FACTOR if items and type(items[0]) in (str, bytes) else 2
        return int(len(items) * len(items) * factor) + 1 + LIST_BASE

    return cost
