"""Numbers of custom resources, as Go reads and writes them.

Go reads a number without point or exponent as an int64 if it fits, any other as a float64. It writes a whole float64
below 10²¹ without a point. So `1.0` is returned as `1`, and `9223372036854775808` as `9223372036854776000`; both are
stored as the Python integer that Go would write. Built-in kinds have declared types, and their decoders see the number
as sent. Integers beyond 64 bits are rare, so a cheap scan of the bytes decides whether to search for them.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from remuda.apiserver import ApiServerError

_SAME_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19  # shortest number that may not fit into 64 bits
_EXACT = 1 << 53
_NEVER_WITHOUT_EXPONENT = 1e21


class NumberTooLarge(ApiServerError):
    """Number that no float64 can hold; the text is the number."""


def decode_numbers(body: bytes) -> Any:
    """Decode the JSON of a custom resource. Raise NumberTooLarge, or msgspec's errors."""
    value = _decode(body)
    return settled(value) if _LONG_NUMBER in body.translate(_SAME_DIGITS) else value


def as_written(number: float) -> int | float:
    """Return the number that a client reads back after Go has written it."""
    if not number.is_integer() or abs(number) >= _NEVER_WITHOUT_EXPONENT:
        return number
    if abs(number) < _EXACT:
        return int(number)
    digits, _, exponent = repr(number).partition("e")
    whole, _, fraction = digits.partition(".")
    if not exponent:
        return int(whole)
    zeros = int(exponent) - len(fraction)
    return int(f"{whole}{fraction}{'0' * zeros}")


def _read_float(text: str) -> int | float:
    number = float(text)
    if math.isinf(number):
        raise NumberTooLarge(text)
    return as_written(number)


_decode = msgspec.json.Decoder(float_hook=_read_float).decode


def settled(value: Any) -> Any:
    """Convert all numbers of a decoded value, in place except for the value itself. Its nesting must be limited."""
    if type(value) is int:
        return value if -(1 << 63) <= value < 1 << 63 else _read_float(str(value))
    if type(value) is float:
        return as_written(value)
    if type(value) is dict:
        for key, inner in value.items():
            value[key] = settled(inner)
    elif type(value) is list:
        value[:] = map(settled, value)
    return value
