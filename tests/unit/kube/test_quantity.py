"""Quantities: canonical texts, arithmetic, bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.quantity import Quantity, QuantityError, canonical_quantity


@pytest.mark.parametrize(
    ("given_text", "stored"),
    [
        ("0", "0"),
        ("0.0", "0"),
        ("-0", "0"),
        ("1", "1"),
        ("1000", "1k"),
        ("1000m", "1"),
        ("1.5", "1500m"),
        ("1.500", "1.500"),
        ("0.500", "500m"),
        ("100m", "100m"),
        ("0.1", "100m"),
        ("0.0001", "100u"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("1000e3", "1e6"),
        ("1.5e3", "1500"),
        ("1Ki", "1Ki"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1000Ki", "1000Ki"),
        ("-1.5Gi", "-1536Mi"),
        ("9Ei", str(2**63 - 1)),
        ("1000000000000", "1T"),
        ("0.1n", "1n"),
        ("123456789", "123456789"),
        ("5E", "5E"),
        ("+1", "+1"),
        (1, "1"),
        (0.5, "500m"),
        (2000, "2k"),
    ],
)
def test_quantities_are_rendered_canonically(given_text: str | int | float, stored: str) -> None:
    assert canonical_quantity(given_text) == stored


@pytest.mark.parametrize("text", ["", "abc", "1.2.3", "1 Gi", "1GiB", "1²", "1" * 1000, "0x10"])
def test_malformed_quantity_is_rejected(text: str) -> None:
    with pytest.raises(QuantityError, match=r"^quantities must match the regular expression"):
        Quantity.parse(text)


@pytest.mark.parametrize("text", ["1mm", "1K", "1e", "1e999999999", "1ee3", "--1"])
def test_invalid_quantity_suffix_is_rejected(text: str) -> None:
    with pytest.raises(QuantityError, match=r"^unable to parse quantity's suffix$"):
        Quantity.parse(text)


def test_quantity_arithmetic_is_exact() -> None:
    assert str(Quantity.parse("0.1") + Quantity.parse("0.2")) == "300m"
    assert str(Quantity.parse("1Gi") - Quantity.parse("512Mi")) == "512Mi"
    assert str(Quantity.parse("0") + Quantity.parse("1Gi")) == "1Gi"
    assert Quantity.parse("1500m").value() == 2
    assert Quantity.parse("-1500m").value() == -2
    assert Quantity.parse("1.5").milli_value() == 1500
    assert not Quantity.parse("0")


def test_resource_quantities_are_rounded_up_to_milli() -> None:
    assert str(Quantity.parse("0.1n").rounded_up_to_milli()) == "1m"
    assert str(Quantity.parse("1.500").rounded_up_to_milli()) == "1.500"


def test_quantities_compare_across_formats() -> None:
    assert Quantity.parse("1Ki") == Quantity.parse("1024")
    assert Quantity.parse("1Ki") > Quantity.parse("1k")
    assert len({Quantity.parse("1"), Quantity.parse("1000m")}) == 1


@given(st.integers(-(10**15), 10**15), st.sampled_from(["n", "u", "m", "", "k", "M", "Ki", "Mi", "e3", "e-3"]))
def test_canonical_quantity_text_preserves_value_and_is_stable(number: int, suffix: str) -> None:
    quantity = Quantity.parse(f"{number}{suffix}")
    again = Quantity.parse(str(quantity + Quantity.parse("0")))
    assert again == quantity
    assert str(Quantity(again.nanos, again.format)) == str(again + Quantity.parse("0"))


@given(st.text("0123456789.+-eEinumkKMGTP", max_size=12))
def test_arbitrary_quantity_parses_or_is_rejected(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except QuantityError:
        return
    assert Quantity.parse(str(quantity)) == quantity
