"""Optional values. `or` and `orValue` are declared here; the program evaluates their right side only if needed."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.values import NO_OVERLOAD, NONE, CelError, Duration, Optional, Timestamp

LIBRARY = Library()

_YEAR_ONE = -62135596800 * 10**9


def _is_zero(value: Any) -> bool:
    if isinstance(value, Duration):
        return value.ns == 0
    if isinstance(value, Timestamp):
        return value.ns == _YEAR_ONE
    if isinstance(value, Optional):
        return value is NONE or _is_zero(value.value)
    return value is None or (isinstance(value, bool | int | float | str | bytes | list | dict) and not value)


def _of_non_zero(value: Any) -> Optional:
    return NONE if _is_zero(value) else Optional(value)


def _none() -> Optional:
    return NONE


def _value(optional: Optional) -> Any:
    if optional is NONE:
        raise CelError("optional.none() dereference")
    return optional.value


def _has_value(optional: Optional) -> bool:
    return optional is not NONE


def either(first: Any, second: Any) -> Any:
    if type(first) is not Optional:
        raise CelError(NO_OVERLOAD)
    return second if first is NONE else first


def value_or(first: Any, default: Any) -> Any:
    if type(first) is not Optional:
        raise CelError(NO_OVERLOAD)
    return default if first is NONE else first.value


def _first(items: list[Any]) -> Optional:
    return Optional(items[0]) if items else NONE


def _last(items: list[Any]) -> Optional:
    return Optional(items[-1]) if items else NONE


def _unwrap(items: list[Any]) -> list[Any]:
    return [item.value for item in items if item is not NONE]


LIBRARY.function("optional.of(V): optional(V)", Optional)
LIBRARY.function("optional.ofNonZeroValue(V): optional(V)", _of_non_zero)
LIBRARY.function("optional.none(): optional(V)", _none)
LIBRARY.method("optional(V).value(): V", _value)
LIBRARY.method("optional(V).hasValue(): bool", _has_value)
LIBRARY.method("optional(V).or(optional(V)): optional(V)", either)
LIBRARY.method("optional(V).orValue(V): V", value_or)
LIBRARY.method("list(V).first(): optional(V)", _first)
LIBRARY.method("list(V).last(): optional(V)", _last)
LIBRARY.function("optional.unwrap(list(optional(V))): list(V)", _unwrap)
LIBRARY.method("list(optional(V)).unwrapOpt(): list(V)", _unwrap)
