"""Ranges of sizes and costs, to estimate the cost of an expression before any data is known.

All arithmetic saturates at the largest unsigned 64-bit number, which means "unbounded".
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from remuda.apiserver.cel.cost import MAX_UNITS


class Range(NamedTuple):
    low: int
    high: int

    def plus(self, other: Range) -> Range:
        return Range(min(self.low + other.low, MAX_UNITS), min(self.high + other.high, MAX_UNITS))

    def times(self, other: Range) -> Range:
        return Range(min(self.low * other.low, MAX_UNITS), min(self.high * other.high, MAX_UNITS))

    def scaled(self, factor: float) -> Range:
        return Range(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


def _scaled(units: int, factor: float) -> int:
    product = float(units) * factor
    return MAX_UNITS if product >= 2.0**64 else min(ceil(product), MAX_UNITS)


def exactly(units: int) -> Range:
    return Range(units, units)


ZERO = Range(0, 0)
ONE = Range(1, 1)
UNKNOWN = Range(0, MAX_UNITS)


class EntrySize(NamedTuple):
    """Size of the keys and values inside a list or map."""

    kind: str  # list or map
    key: Range
    value: Range

    def union(self, other: EntrySize | None) -> EntrySize | None:
        if other is None:
            return None
        return EntrySize(self.kind, self.key.union(other.key), self.value.union(other.value))


class Estimate(NamedTuple):
    """Estimate of one call: its cost without its arguments, and the size of its result, if known."""

    cost: Range
    size: Range | None = None
