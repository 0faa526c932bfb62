"""Amounts as Kubernetes writes them: 1.5Gi, 250m, 2e3. Exact, down to nano; finer amounts are rounded up."""

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
# Text this long cannot be an amount anyone means, and exact arithmetic on it would take long.
_MAX_DIGITS = 1000


class Quantity(Opaque):
    __slots__ = ("amount",)
    type_name = "kubernetes.Quantity"

    def __init__(self, amount: Fraction) -> None:
        self.amount = amount

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
    if not digits or len(digits) > _MAX_DIGITS:
        raise CelError("unable to parse numeric part of quantity")
    amount = Fraction(int(digits), 10 ** len(fraction or "")) * factor
    amount = Fraction(ceil(amount * _NANO), _NANO)
    if suffix in _BINARY and amount > INT_MAX:
        amount = Fraction(INT_MAX)
    return Quantity(-amount if sign == "-" else amount)


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
    return quantity.amount.denominator == 1 and INT_MIN <= quantity.amount <= INT_MAX


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
LIBRARY.method(
    "kubernetes.Quantity.add(kubernetes.Quantity): kubernetes.Quantity", lambda a, b: Quantity(a.amount + b.amount)
)
LIBRARY.method("kubernetes.Quantity.add(int): kubernetes.Quantity", lambda a, b: Quantity(a.amount + b))
LIBRARY.method(
    "kubernetes.Quantity.sub(kubernetes.Quantity): kubernetes.Quantity", lambda a, b: Quantity(a.amount - b.amount)
)
LIBRARY.method("kubernetes.Quantity.sub(int): kubernetes.Quantity", lambda a, b: Quantity(a.amount - b))
