"""Conversions: int(), uint(), double(), string(), bytes(), bool(), duration(), timestamp(), type() and dyn()."""

from __future__ import annotations

import math
import re
from typing import Any

from remuda.apiserver.cel import cost
from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.times import duration_text, parse_duration, parse_timestamp, timestamp_text
from remuda.apiserver.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    CelError,
    Duration,
    Timestamp,
    TypeValue,
    Uint,
    checked_int,
    checked_timestamp,
    checked_uint,
    type_name,
)

LIBRARY = Library()


def _failed(source: str, target: str) -> CelError:
    return CelError(f"type conversion error from '{source}' to '{target}'")


def _same(value: Any) -> Any:
    return value


_INT = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)
_UINT = re.compile(r"[0-9]{1,30}", re.ASCII)
_DOUBLE = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|inf|infinity)|nan", re.ASCII | re.I
)


_HEX_DOUBLE = re.compile(r"[+-]?0x[0-9a-f]{1,16}(?:\.[0-9a-f]{0,16})?p[+-]?[0-9]{1,3}", re.ASCII | re.I)


def _int_of_text(text: str) -> int:
    value = int(text) if _INT.fullmatch(text) else INT_MAX + 1
    if not INT_MIN <= value <= INT_MAX:
        raise _failed("string", "int")
    return value


def _int_of_double(value: float) -> int:
    if math.isnan(value) or value <= INT_MIN or value >= INT_MAX:
        raise CelError("integer overflow")
    return int(value)


def _uint_of_text(text: str) -> Uint:
    value = int(text) if _UINT.fullmatch(text) else UINT_MAX + 1
    if value > UINT_MAX:
        raise _failed("string", "uint")
    return Uint(value)


def _uint_of_double(value: float) -> Uint:
    if math.isnan(value) or value < 0 or value >= UINT_MAX:
        raise CelError("unsigned integer overflow")
    return Uint(int(value))


def _double_of_text(text: str) -> float:
    if _HEX_DOUBLE.fullmatch(text):
        return float.fromhex(text)
    if _DOUBLE.fullmatch(text):
        value = float(text)
        if not math.isinf(value) or "inf" in text.lower():
            return value
    raise _failed("string", "double")


_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def _bool_of_text(text: str) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise _failed("string", "bool")


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def double_text(value: float) -> str:
    """Print a double as Go's shortest %g does: with an exponent from 1e+06 and below 1e-04."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    mantissa, _, exponent = f"{value!r}".partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    fraction = "" if fraction == "0" and not exponent else fraction
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if not digits:
        return sign + "0"
    return sign + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    if point - 1 < -4 or point - 1 >= 6:
        power = point - 1
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{digits[0]}{tail}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if point <= 0:
        return "0." + "0" * -point + digits
    if point >= len(digits):
        return digits + "0" * (point - len(digits))
    return f"{digits[:point]}.{digits[point:]}"


def _text_of_bool(value: bool) -> str:
    return "true" if value else "false"


def _text_of_int(value: int) -> str:
    return int.__repr__(value)


def _duration_of_text(text: str) -> Duration:
    found = parse_duration(text)
    if found is None:
        raise _failed("string", "google.protobuf.Duration")
    return found


def _timestamp_of_text(text: str) -> Timestamp:
    found = parse_timestamp(text)
    if found is None:
        raise _failed("string", "google.protobuf.Timestamp")
    return found


def _seconds(value: Timestamp) -> int:
    return value.ns // 10**9


def _nanoseconds(value: Duration) -> int:
    return value.ns


def _timestamp_of_int(value: int) -> Timestamp:
    return checked_timestamp(value * 10**9)


def _bytes_of_text(value: str) -> bytes:
    return value.encode()


def _type(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


# For each result type: the accepted types, and how each is converted.
_CONVERSIONS: dict[str, dict[str, Any]] = {
    "bool": {"bool": _same, "string": _bool_of_text},
    "bytes": {"bytes": _same, "string": _bytes_of_text},
    "double": {"double": _same, "int": float, "string": _double_of_text, "uint": float},
    "duration": {"duration": _same, "int": Duration, "string": _duration_of_text},
    "int": {
        "int": _same,
        "double": _int_of_double,
        "duration": _nanoseconds,
        "string": _int_of_text,
        "timestamp": _seconds,
        "uint": lambda value: checked_int(int(value)),
    },
    "string": {
        "string": _same,
        "bool": _text_of_bool,
        "bytes": _text_of_bytes,
        "double": double_text,
        "duration": duration_text,
        "int": _text_of_int,
        "timestamp": timestamp_text,
        "uint": _text_of_int,
    },
    "timestamp": {"timestamp": _same, "int": _timestamp_of_int, "string": _timestamp_of_text},
    "uint": {"uint": _same, "double": _uint_of_double, "int": checked_uint, "string": _uint_of_text},
}
for _result, _sources in _CONVERSIONS.items():
    for _source, _impl in _sources.items():
        _reads_all = (_source, _result) in (("string", "bytes"), ("bytes", "string"))
        LIBRARY.function(
            f"{_result}({_source}): {_result}",
            _impl,
            id=f"{_source}_to_{_result}",
            cost=cost.of_first if _reads_all else None,
            pure=True,
        )
LIBRARY.function("type(A): type(A)", _type, id="type", pure=True)
LIBRARY.function("dyn(A): dyn", _same, id="to_dyn", pure=True)
