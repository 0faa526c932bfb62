"""Amounts as Kubernetes writes them (`500m`, `1Gi`, `2e3`), and the one form the server gives to each.

The real server parses every quantity and prints it anew, so `1000m` reads back as `1` and `0.5` as `500m`. What is
finer than a billionth is rounded up, what is larger than an int64 is cut to it.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

COMPLAINT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"

_PARTS = re.compile(r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?P<suffix>[A-Za-z]*)(?P<exponent>[-+]?[0-9]*)")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_LARGEST = Decimal(2**63 - 1)
_LONGEST = 64  # characters; nobody writes more, and arithmetic on thousands of digits is slow


class QuantityError(ValueError):
    pass


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The server's form of a quantity. Raises QuantityError."""
    value, style = _parse(text)
    if style == "binary" and -1024 < value < 1024:
        style = "decimal"  # binary suffixes are only kept from 1Ki on
    if style == "binary":
        return _binary(value)
    return _decimal(value, with_exponent=style == "exponent")


def value_of(text: str) -> Decimal:
    """The number a quantity stands for. Raises QuantityError."""
    return _parse(text)[0]


def _parse(text: str) -> tuple[Decimal, str]:
    parts = _PARTS.fullmatch(text) if len(text) <= _LONGEST else None
    if parts is None:
        raise QuantityError(COMPLAINT)
    factor, style = _factor(parts["suffix"], parts["exponent"])
    value = Decimal(parts["number"]) * factor
    return max(min(value, _LARGEST), -_LARGEST).quantize(Decimal("1e-9"), ROUND_CEILING).normalize(), style


def _factor(suffix: str, exponent: str) -> tuple[Decimal, str]:
    if exponent:
        if suffix not in ("e", "E") or len(exponent) > 4:
            raise QuantityError("unable to parse quantity's suffix")
        return Decimal(10) ** int(exponent), "exponent"
    if suffix in _BINARY:
        return Decimal(2 ** _BINARY[suffix]), "binary"
    if suffix in _DECIMAL:
        return Decimal(10) ** _DECIMAL[suffix], "decimal"
    raise QuantityError("unable to parse quantity's suffix")


def _binary(value: Decimal) -> str:
    if value != value.to_integral_value():
        return _decimal(value, with_exponent=False)
    number, suffix = int(value), ""
    for name in _BINARY:
        if number % 1024:
            break
        number, suffix = number // 1024, name
    return f"{number}{suffix}"


def _decimal(value: Decimal, *, with_exponent: bool) -> str:
    """The largest power of a thousand that leaves a whole number."""
    if not value:
        return "0"
    power = -9
    scaled = int(value.scaleb(9))
    while power < 18 and scaled % 1000 == 0:
        scaled, power = scaled // 1000, power + 3
    if with_exponent:
        return f"{scaled}e{power}" if power else str(scaled)
    return f"{scaled}{_DECIMAL_SUFFIX[power]}"
