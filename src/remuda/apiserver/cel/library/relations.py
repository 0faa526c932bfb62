"""Equality and order. Numbers of different types compare by value."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.cel import cost
from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.values import NO_OVERLOAD, CelError, compare, equal

LIBRARY = Library()


def not_equal(a: Any, b: Any) -> bool:
    return not equal(a, b)


LIBRARY.function("_==_(A, A): bool", equal, id="equals", cost=cost.of_shorter)
LIBRARY.function("_!=_(A, A): bool", not_equal, id="not_equals", cost=cost.of_shorter)


def less(a: Any, b: Any) -> bool:
    return compare(a, b) < 0


def less_or_equal(a: Any, b: Any) -> bool:
    return compare(a, b) <= 0


def greater(a: Any, b: Any) -> bool:
    return compare(a, b) > 0


def greater_or_equal(a: Any, b: Any) -> bool:
    return compare(a, b) >= 0


_PAIRS = (
    *((kind, kind) for kind in ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")),
    ("int", "double"),
    ("int", "uint"),
    ("uint", "double"),
    ("uint", "int"),
    ("double", "int"),
    ("double", "uint"),
)
for _name, _impl in (("_<_", less), ("_<=_", less_or_equal), ("_>_", greater), ("_>=_", greater_or_equal)):
    for _left, _right in _PAIRS:
        LIBRARY.function(
            f"{_name}({_left}, {_right}): bool",
            _impl,
            id=f"compare_{_left}",
            cost=cost.of_shorter if _left in ("string", "bytes") else None,
        )


def _never_called(*args: Any) -> Any:
    """Declare the types only; the program itself chooses the branch."""
    raise CelError(NO_OVERLOAD)


LIBRARY.function("_?_:_(bool, A, A): A", _never_called, id="conditional")
