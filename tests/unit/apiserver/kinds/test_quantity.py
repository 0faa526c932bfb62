from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.kinds.quantity import QuantityError, canonical, value_of


@pytest.mark.parametrize(
    ("given_text", "stored"),
    [
        ("1", "1"),
        ("1000m", "1"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("5.", "5"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1024", "1024"),
        ("512Ki", "512Ki"),
        ("0.5Ki", "512"),
        ("100k", "100k"),
        ("1e3", "1e3"),
        ("12E2", "1200"),
        ("1e-3", "1e-3"),
        ("2E", "2E"),
        ("-5m", "-5m"),
        ("0Gi", "0"),
        ("0.0000000001", "1n"),
        ("99999999999999999999", "9223372036854775807"),
    ],
)
def test_the_stored_form(given_text: str, stored: str) -> None:
    assert canonical(given_text) == stored


@pytest.mark.parametrize(
    "text", ["", "x", "1x", "1 Gi", "1ki", "--1", "1e", "1e99999", "Gi", "1" * 100, "1.2.3", "NaN"]
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(QuantityError):
        canonical(text)


@given(
    st.integers(-(10**6), 10**6),
    st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "n", "u", "e2", "e-2"]),
)
def test_the_form_is_stable_and_keeps_the_value(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    stored = canonical(text)
    assert canonical(stored) == stored
    assert value_of(stored) == value_of(text)


def test_values_compare() -> None:
    assert value_of("1Gi") == Decimal(2**30)
    assert value_of("100m") < value_of("1")
