"""Amounts that are a number or a percentage of another number, as `maxSurge: 25%` is."""

from __future__ import annotations


def resolve(amount: int | str, of: int, *, up: bool) -> int:
    """Return the number that `amount` stands for: itself, or its percentage of `of`, rounded up or down.

    Raises ValueError if it is neither a number nor a percentage.
    """
    if isinstance(amount, int):
        return amount
    number, percent, rest = amount.partition("%")
    if not percent or rest or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{amount!r} is neither a number nor a percentage like '25%'")
    share = int(number) * of
    return -(-share // 100) if up else share // 100
