"""Quantities as Kubernetes writes them: 1.5Gi, 250m, 2e3. They are exact down to nano; finer amounts are rounded up."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil

from remuda.apiserver.cel import cost
from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.values import INT_MAX, INT_MIN, CelError, Opaque

LIBRARY = Library()

_PATTERN = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_SHAPE = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,9})", re.ASCII)
_NANO = 10**9
# No real quantity is this long, and exact arithmetic on it would be slow.
_MAX_DIGITS = 1000


class Quantity(Opaque):
    """Quantity, with the power of ten that Go stores it in as a 64-bit number.

    `scale` is None where Go would use big decimals. asInteger() never accepts such a quantity, nor one that is stored
    in fractions, whatever its value.
    """

    __slots__ = ("amount", "scale")
    type_name = "kubernetes.Quantity"

    def __init__(self, amount: Fraction, scale: int | None) -> None:
        self.amount = amount
        self.scale = scale

    def plus(self, other: Quantity, sign: int) -> Quantity:
        if not other.amount:
            return self
        if not self.amount:
            return Quantity(sign * other.amount, other.scale)
        total = self.amount + sign * other.amount
        if self.scale is None or other.scale is None:
            return Quantity(total, None)
        scale = min(self.scale, other.scale)
        return Quantity(total, scale if abs(total / Fraction(10) ** scale) <= INT_MAX else None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.amount == other.amount

    def __hash__(self) -> int:
        return hash(self.amount)


def parse(text: str) -> Quantity:
    match = _SHAPE.fullmatch(text)
    if match is None or not text:
        raise CelError(f"quantities must match the regular expression '{_PATTERN}'")
    sign, whole, fraction, suffix = match.groups()
    factor = _factor(suffix)
    if factor is None:
        raise CelError("unable to parse quantity's suffix")
    digits = whole + (fraction or "")
    if len(digits) > _MAX_DIGITS:
        raise CelError("unable to parse numeric part of quantity")
    amount = Fraction(int(digits or 0), 10 ** len(fraction or "")) * factor
    amount = Fraction(ceil(amount * _NANO), _NANO)
    if suffix in _BINARY and amount > INT_MAX:
        amount = Fraction(INT_MAX)
    return Quantity(-amount if sign == "-" else amount, _scale(whole.lstrip("0") or "0", fraction or "", suffix))


def _scale(whole: str, fraction: str, suffix: str) -> int | None:
    """Return the power of ten that Go stores an amount of this notation in; None: Go uses big decimals."""
    if suffix in _BINARY:
        fits = not fraction and len(whole) + int(_BINARY[suffix] * 3 / 10) <= 14
        return 0 if fits else None
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    scale = exponent - len(fraction)
    return scale if len(whole) + len(fraction) <= 18 and scale >= -9 else None


def _factor(suffix: str) -> Fraction | None:
    if suffix in _DECIMAL:
        return Fraction(10) ** _DECIMAL[suffix]
    if suffix in _BINARY:
        return Fraction(2 ** _BINARY[suffix])
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None or abs(int(exponent[1])) > _MAX_DIGITS:
        return None
    return Fraction(10) ** int(exponent[1])


def _is_quantity(text: str) -> bool:
    try:
        parse(text)
    except CelError:
        return False
    return True


def _is_integer(quantity: Quantity) -> bool:
    return quantity.scale is not None and quantity.scale >= 0 and INT_MIN <= quantity.amount <= INT_MAX


def _as_integer(quantity: Quantity) -> int:
    if not _is_integer(quantity):
        raise CelError("cannot convert value to integer")
    return quantity.amount.numerator


def _as_double(quantity: Quantity) -> float:
    try:
        return float(quantity.amount)
    except OverflowError:
        return float("inf") if quantity.amount > 0 else float("-inf")


def _compare(a: Quantity, b: Quantity) -> int:
    return (a.amount > b.amount) - (a.amount < b.amount)


LIBRARY.function("quantity(string): kubernetes.Quantity", parse, cost=cost.of_first)
LIBRARY.function("isQuantity(string): bool", _is_quantity, cost=cost.of_first)
LIBRARY.function("sign(kubernetes.Quantity): int", lambda q: (q.amount > 0) - (q.amount < 0))
LIBRARY.method("kubernetes.Quantity.isGreaterThan(kubernetes.Quantity): bool", lambda a, b: a.amount > b.amount)
LIBRARY.method("kubernetes.Quantity.isLessThan(kubernetes.Quantity): bool", lambda a, b: a.amount < b.amount)
LIBRARY.method("kubernetes.Quantity.compareTo(kubernetes.Quantity): int", _compare)
LIBRARY.method("kubernetes.Quantity.asApproximateFloat(): double", _as_double)
LIBRARY.method("kubernetes.Quantity.asInteger(): int", _as_integer)
LIBRARY.method("kubernetes.Quantity.isInteger(): bool", _is_integer)
LIBRARY.method("kubernetes.Quantity.add(kubernetes.Quantity): kubernetes.Quantity", lambda a, b: a.plus(b, 1))
LIBRARY.method("kubernetes.Quantity.add(int): kubernetes.Quantity", lambda a, b: a.plus(Quantity(Fraction(b), 0), 1))
LIBRARY.method("kubernetes.Quantity.sub(kubernetes.Quantity): kubernetes.Quantity", lambda a, b: a.plus(b, -1))
LIBRARY.method("kubernetes.Quantity.sub(int): kubernetes.Quantity", lambda a, b: a.plus(Quantity(Fraction(b), 0), -1))
