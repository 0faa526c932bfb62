"""Implementation of string.format: %s, %d, %f, %e, %b, %o, %x and %X.

`clauses` parses a format string for two uses: producing text, and checking a literal format against the types of
literal arguments at compile time. %f and %e print doubles in en-US style, because Kubernetes has done so since 1.29.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from remuda.apiserver import ApiServerError
from remuda.apiserver.cel.library.conversions import double_text
from remuda.apiserver.cel.times import duration_text, timestamp_text
from remuda.apiserver.cel.values import CelError, Duration, Timestamp, TypeValue, Uint, from_key, type_name

_CLAUSE = re.compile(r"%(?:(%)|(\.[0-9]*)?(.)?)", re.S)
MAX_PRECISION = 1000
_DEFAULT_PRECISION = 6


class FormatError(ApiServerError):
    """Format string that is invalid for any arguments."""


def clauses(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield each literal text, the clause after it ("" at the end, "%" for %%) and the precision (-1: none given)."""
    at = 0
    for match in _CLAUSE.finditer(text):
        if match.group(1):
            yield text[at : match.start()], "%", -1
        else:
            yield text[at : match.start()], match.group(3) or "", _precision(match.group(2))
        at = match.end()
    yield text[at:], "end", -1


def _precision(text: str | None) -> int:
    if text is None:
        return -1
    return int(text[1:]) if len(text) > 1 and len(text) < 6 else -2


def check_clause(clause: str, precision: int) -> None:
    if clause == "":
        raise FormatError("unexpected end of string")
    if precision == -2:
        raise FormatError(
            "could not parse formatting clause: error while parsing precision: "
            'error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax'
        )
    if clause not in CLAUSES:
        raise FormatError(f'could not parse formatting clause: unrecognized formatting clause "{clause}"')


def format_string(text: str, args: list[Any]) -> str:
    parts: list[str] = []
    used = 0
    try:
        for literal, clause, precision in clauses(text):
            parts.append(literal)
            if clause == "%":
                parts.append("%")
            elif clause != "end":
                if used >= len(args):
                    raise FormatError(f"index {used} out of range")
                check_clause(clause, precision)
                parts.append(CLAUSES[clause](args[used], min(precision, MAX_PRECISION)))
                used += 1
    except FormatError as wrong:
        raise CelError(str(wrong)) from None
    return "".join(parts)


# For each clause: the types that it accepts, and its error for other types.
ACCEPTED: dict[str, tuple[frozenset[str], str]] = {
    "s": (
        frozenset(
            ["list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null"]
        ),
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
        "timestamps",
    ),
    "d": (frozenset(("int", "uint")), "decimal clause can only be used on integers"),
    "f": (frozenset(("double", "string")), "fixed-point clause can only be used on doubles"),
    "e": (frozenset(("double", "string")), "scientific clause can only be used on doubles"),
    "b": (frozenset(("int", "uint", "bool")), "only integers and bools can be formatted as binary"),
    "x": (
        frozenset(("int", "uint", "string", "bytes")),
        "only integers, byte buffers, and strings can be formatted as hex",
    ),
    "o": (frozenset(("int", "uint")), "octal clause can only be used on integers"),
}
ACCEPTED["X"] = ACCEPTED["x"]


def refusal(clause: str, given: str) -> str:
    return f"error during formatting: {ACCEPTED[clause][1]}, was given {given}"


def _refused(clause: str, value: Any) -> FormatError:
    return FormatError(refusal(clause, type_name(value)))


def as_text(value: Any, precision: int = -1) -> str:
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is list or kind is dict:
        return _nested(value)
    formatter = _PLAIN.get(kind)
    if formatter is None:
        raise _refused("s", value)
    return formatter(value)


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise FormatError("error during formatting: could not convert argument to string") from None


_PLAIN: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "true" if value else "false",
    int: str,
    Uint: int.__repr__,
    float: double_text,
    bytes: _bytes_text,
    type(None): lambda value: "null",
    Duration: duration_text,
    Timestamp: timestamp_text,
    TypeValue: lambda value: value.name,
}


def _nested(value: Any) -> str:
    """Print a value inside a list or map as a CEL literal."""
    kind = type(value)
    if kind is list:
        return f"[{', '.join(map(_nested, value))}]"
    if kind is dict:
        pairs = sorted((_nested(from_key(key)), _nested(inner)) for key, inner in value.items())
        return "{" + ", ".join(f"{key}:{inner}" for key, inner in pairs) + "}"
    if kind is str:
        return json.dumps(value, ensure_ascii=False)
    if kind is bytes:
        return "b" + json.dumps(_bytes_text(value), ensure_ascii=False)
    if kind is float:
        return f"{value:.6f}" if math.isfinite(value) else f'"{_not_finite(value)}"'
    if kind is Timestamp:
        return f'timestamp("{timestamp_text(value)}")'
    if kind is Duration:
        return f'duration("{duration_text(value)}")'
    if kind not in _PLAIN:
        raise FormatError(f"error during formatting: no formatting function for {type_name(value)}")
    return _PLAIN[kind](value)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")


def _decimal(value: Any, precision: int) -> str:
    if type(value) not in (int, Uint):
        raise _refused("d", value)
    return int.__repr__(value)


_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _as_double(clause: str, value: Any) -> float:
    if type(value) is str and value in _WORDS:
        return _WORDS[value]
    if type(value) is not float:
        raise _refused(clause, value)
    return value


def _symbol(value: float) -> str:
    return "NaN" if math.isnan(value) else ("∞" if value > 0 else "-∞")


def _fixed(value: Any, precision: int) -> str:
    number = _as_double("f", value)
    if not math.isfinite(number):
        return _symbol(number)
    return f"{number:,.{_DEFAULT_PRECISION if precision < 0 else precision}f}"


_SUPERSCRIPT = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")


def _scientific(value: Any, precision: int) -> str:
    number = _as_double("e", value)
    if not math.isfinite(number):
        return _symbol(number)
    mantissa, _, exponent = f"{number:.{_DEFAULT_PRECISION}e}".partition("e")
    power = int(exponent)
    return f"{mantissa}×10{'⁻' if power < 0 else ''}{f'{abs(power):02d}'.translate(_SUPERSCRIPT)}"


def _binary(value: Any, precision: int) -> str:
    if type(value) is bool:
        return "1" if value else "0"
    if type(value) not in (int, Uint):
        raise _refused("b", value)
    return f"{int(value):b}"


def _octal(value: Any, precision: int) -> str:
    if type(value) not in (int, Uint):
        raise _refused("o", value)
    return f"{int(value):o}"


def _hex(value: Any, precision: int) -> str:
    if type(value) is str:
        return value.encode().hex()
    if type(value) is bytes:
        return value.hex()
    if type(value) not in (int, Uint):
        raise _refused("x", value)
    return f"{int(value):x}"


def _upper_hex(value: Any, precision: int) -> str:
    return _hex(value, precision).upper()


CLAUSES: dict[str, Callable[[Any, int], str]] = {
    "s": as_text,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "o": _octal,
    "x": _hex,
    "X": _upper_hex,
}
