"""`resource.Quantity`: exact amounts such as `500m`, `1.5Gi` or `12e6`, and their canonical text.

The amount is an integer count of 10⁻⁹; only finer amounts are rounded (away from zero, as upstream does). A text that
is already canonical is kept unchanged, as upstream does: that is why `1.500` stays while `1.5` becomes `1500m`.
Exponents are limited, so a short text cannot request a huge number.
"""

from __future__ import annotations

import re
from functools import lru_cache, total_ordering
from typing import Literal

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

_NANO = 10**9
_LARGEST_BINARY = (2**63 - 1) * _NANO
_MAX_EXPONENT = 300
_MAX_TEXT = 512

_PARTS = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY.items()}


class QuantityError(ValueError):
    """Invalid quantity; the text is the message for the client."""


_WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_SUFFIX = "unable to parse quantity's suffix"


@total_ordering
class Quantity:
    """Immutable quantity. Compares by amount; `str()` returns the canonical text."""

    __slots__ = ("_nanos", "_text", "format")

    def __init__(self, nanos: int, format: Format = "DecimalSI", text: str = "") -> None:
        self._nanos = nanos
        self.format: Format = format
        self._text = text

    @classmethod
    def parse(cls, value: str | int | float) -> Quantity:
        """Parse a text or a JSON number. Raise QuantityError."""
        return _parse(value.strip() if isinstance(value, str) else repr(value))

    @property
    def nanos(self) -> int:
        return self._nanos

    def value(self) -> int:
        """Return the amount in whole units, rounded up (away from zero)."""
        return _divide_up(self._nanos, _NANO)

    def milli_value(self) -> int:
        return _divide_up(self._nanos, 10**6)

    def rounded_up_to_milli(self) -> Quantity:
        """Round up to thousandths, as for default amounts; return the same object if nothing is finer."""
        rounded = _divide_up(self._nanos, 10**6) * 10**6
        return self if rounded == self._nanos else Quantity(rounded, self.format)

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self._nanos + other._nanos, self.format if self._nanos else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self._nanos - other._nanos, self.format if self._nanos else other.format)

    def __neg__(self) -> Quantity:
        return Quantity(-self._nanos, self.format)

    def __bool__(self) -> bool:
        return self._nanos != 0

    def __eq__(self, other: object) -> bool:
        return self._nanos == other._nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self._nanos < other._nanos

    def __hash__(self) -> int:
        return hash(self._nanos)

    def __str__(self) -> str:
        if not self._text:
            self._text = _canonical(self._nanos, self.format)
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"


def canonical_quantity(value: str | int | float) -> str:
    """Return the text under which the server stores a quantity. Raise QuantityError."""
    return str(Quantity.parse(value))


@lru_cache(maxsize=1024)
def _parse(text: str) -> Quantity:
    parts = _PARTS.fullmatch(text) if 0 < len(text) <= _MAX_TEXT else None
    if parts is None:
        raise QuantityError(_WRONG_FORMAT)
    sign, whole, fraction, suffix = parts[1], parts[2], parts[3] or "", parts[4]
    if not whole and not text.strip("+-0"):
        return Quantity(0, text="0")
    whole = whole or "0"
    digits = int(whole + fraction)
    if suffix in _BINARY:
        return _binary(text, sign, digits, whole, fraction, _BINARY[suffix])
    format: Format = "DecimalSI" if suffix in _DECIMAL else "DecimalExponent"
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else _decimal_exponent(suffix)
    scale = exponent - len(fraction)
    kept = _fits(whole, fraction, scale) and scale % 3 == 0 and _ends_in_canon(whole + fraction)
    nanos = _scaled(digits, scale + 9)
    return Quantity(-nanos if sign == "-" else nanos, format, text if kept else "")


def _fits(whole: str, fraction: str, scale: int) -> bool:
    """Return whether upstream stores the quantity in 64 bits, the only form in which it preserves the text."""
    return len(whole) + len(fraction) <= 18 and scale >= -9


def _ends_in_canon(shifted: str) -> bool:
    return not shifted.endswith("000") and shifted[0] != "0"


def _decimal_exponent(suffix: str) -> int:
    found = _EXPONENT.fullmatch(suffix)
    if found is None or len(found[1]) > 5 or abs(int(found[1])) > _MAX_EXPONENT:
        raise QuantityError(_WRONG_SUFFIX)
    return int(found[1])


def _binary(text: str, sign: str, digits: int, whole: str, fraction: str, exponent: int) -> Quantity:
    precision = 15 - len(whole) - exponent * 3 // 10 - 1 if not fraction else -1
    kept = precision >= 0 and digits & 7 != 0
    nanos = min(_scaled(digits << exponent, 9 - len(fraction)), _LARGEST_BINARY)
    format: Format = "DecimalSI" if 0 < nanos < _NANO else "BinarySI"
    return Quantity(-nanos if sign == "-" else nanos, format, text if kept else "")


def _scaled(number: int, power: int) -> int:
    """Return number · 10^power, rounded up."""
    return number * 10**power if power >= 0 else _divide_up(number, 10**-power)


def _divide_up(number: int, by: int) -> int:
    return -(-number // by) if number >= 0 else number // by


def _canonical(nanos: int, format: Format) -> str:
    if nanos == 0:
        return "0"
    if format == "BinarySI" and abs(nanos) >= 1024 * _NANO and nanos % _NANO == 0:
        amount, exponent = nanos // _NANO, 0
        while amount % 1024 == 0 and exponent < 60:
            amount, exponent = amount // 1024, exponent + 10
        return f"{amount}{_BINARY_SUFFIX.get(exponent, '')}"
    amount, exponent = nanos, -9
    limit = 18 if format != "DecimalExponent" else 10 * _MAX_EXPONENT
    while amount % 1000 == 0 and exponent < limit:
        amount, exponent = amount // 1000, exponent + 3
    if format == "DecimalExponent":
        return f"{amount}e{exponent}" if exponent else str(amount)
    return f"{amount}{_DECIMAL_SUFFIX[exponent]}"
