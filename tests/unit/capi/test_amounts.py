from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi.amounts import resolve


@pytest.mark.parametrize(
    ("amount", "of", "up", "result"),
    [(2, 10, True, 2), ("25%", 10, True, 3), ("25%", 10, False, 2), ("0%", 7, True, 0), ("100%", 7, False, 7)],
)
def test_number_or_percentage_resolves_to_a_count(amount: int | str, of: int, up: bool, result: int) -> None:
    assert resolve(amount, of, up=up) == result


@pytest.mark.parametrize("amount", ["", "5", "%", "-5%", "5%%", "5% ", "half", "٣%"])
def test_invalid_amount_is_rejected(amount: str) -> None:
    with pytest.raises(ValueError, match="neither a number nor a percentage"):
        resolve(amount, 10, up=True)


@given(percent=st.integers(0, 100), of=st.integers(0, 10_000))
def test_percentage_rounding_brackets_the_exact_share(percent: int, of: int) -> None:
    low, high = resolve(f"{percent}%", of, up=False), resolve(f"{percent}%", of, up=True)
    assert low * 100 <= percent * of <= high * 100
    assert high - low in (0, 1)
