"""Arithmetic (+ - * / % and negation). Overflow is an error: results neither wrap nor grow beyond 64 bits."""

from __future__ import annotations

import math
from typing import Any

from remuda.apiserver.cel import cost
from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.values import (
    INT_MAX,
    INT_MIN,
    NO_OVERLOAD,
    CelError,
    Duration,
    Timestamp,
    Uint,
    checked_duration,
    checked_int,
    checked_timestamp,
    checked_uint,
)

LIBRARY = Library()


def add_int(a: int, b: int) -> int:
    total = a + b
    if INT_MIN <= total <= INT_MAX:
        return total
    raise CelError("integer overflow")


def _add_uint(a: int, b: int) -> Uint:
    return checked_uint(int(a) + int(b))


def _plain_add(a: Any, b: Any) -> Any:
    return a + b


def _subtract_int(a: int, b: int) -> int:
    return checked_int(a - b)


def _subtract_uint(a: int, b: int) -> Uint:
    return checked_uint(int(a) - int(b))


def _subtract_double(a: float, b: float) -> float:
    return a - b


def _multiply_int(a: int, b: int) -> int:
    return checked_int(a * b)


def _multiply_uint(a: int, b: int) -> Uint:
    return checked_uint(int(a) * int(b))


def _multiply_double(a: float, b: float) -> float:
    return a * b


def _divide_int(a: int, b: int) -> int:
    if b == 0:
        raise CelError("division by zero")
    quotient = abs(a) // abs(b)  # rounds toward zero, as Go does
    return checked_int(quotient if (a < 0) == (b < 0) else -quotient)


def _divide_uint(a: int, b: int) -> Uint:
    if b == 0:
        raise CelError("division by zero")
    return Uint(int(a) // int(b))


def _divide_double(a: float, b: float) -> float:
    if b:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _modulo_int(a: int, b: int) -> int:
    if b == 0:
        raise CelError("modulus by zero")
    if a == INT_MIN and b == -1:
        raise CelError("integer overflow")
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest  # the sign of the dividend, as in Go


def _modulo_uint(a: int, b: int) -> Uint:
    if b == 0:
        raise CelError("modulus by zero")
    return Uint(int(a) % int(b))


def _negate_int(a: int) -> int:
    return checked_int(-a)


def _negate_double(a: float) -> float:
    return -a


def _add_durations(a: Duration, b: Duration) -> Duration:
    return checked_duration(a.ns + b.ns)


def _add_duration_time(a: Duration, b: Timestamp) -> Timestamp:
    return checked_timestamp(a.ns + b.ns, b.offset)


def _add_time_duration(a: Timestamp, b: Duration) -> Timestamp:
    return checked_timestamp(a.ns + b.ns, a.offset)


def _subtract_durations(a: Duration, b: Duration) -> Duration:
    return checked_duration(a.ns - b.ns)


def _subtract_times(a: Timestamp, b: Timestamp) -> Duration:
    return checked_duration(a.ns - b.ns)


def _subtract_time_duration(a: Timestamp, b: Duration) -> Timestamp:
    return checked_timestamp(a.ns - b.ns, a.offset)


LIBRARY.function("_+_(bytes, bytes): bytes", _plain_add, id="add_bytes", cost=cost.of_both)
LIBRARY.function("_+_(double, double): double", _plain_add, id="add_double")
LIBRARY.function("_+_(duration, duration): duration", _add_durations)
LIBRARY.function("_+_(duration, timestamp): timestamp", _add_duration_time)
LIBRARY.function("_+_(timestamp, duration): timestamp", _add_time_duration)
LIBRARY.function("_+_(int, int): int", add_int, id="add_int64")
LIBRARY.function("_+_(list(A), list(A)): list(A)", _plain_add, id="add_list")
LIBRARY.function("_+_(string, string): string", _plain_add, id="add_string", cost=cost.of_both)
LIBRARY.function("_+_(uint, uint): uint", _add_uint)

LIBRARY.function("_-_(double, double): double", _subtract_double)
LIBRARY.function("_-_(duration, duration): duration", _subtract_durations)
LIBRARY.function("_-_(int, int): int", _subtract_int)
LIBRARY.function("_-_(timestamp, duration): timestamp", _subtract_time_duration)
LIBRARY.function("_-_(timestamp, timestamp): duration", _subtract_times)
LIBRARY.function("_-_(uint, uint): uint", _subtract_uint)

LIBRARY.function("_*_(double, double): double", _multiply_double)
LIBRARY.function("_*_(int, int): int", _multiply_int)
LIBRARY.function("_*_(uint, uint): uint", _multiply_uint)

LIBRARY.function("_/_(double, double): double", _divide_double)
LIBRARY.function("_/_(int, int): int", _divide_int)
LIBRARY.function("_/_(uint, uint): uint", _divide_uint)

LIBRARY.function("_%_(int, int): int", _modulo_int)
LIBRARY.function("_%_(uint, uint): uint", _modulo_uint)

LIBRARY.function("-_(double): double", _negate_double)
LIBRARY.function("-_(int): int", _negate_int)


def negate_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise CelError(NO_OVERLOAD)
    return not value


LIBRARY.function("!_(bool): bool", negate_bool)
