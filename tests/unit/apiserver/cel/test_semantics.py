"""Properties of arithmetic, equality and order that no table of examples covers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.library import FUNCTIONS
from remuda.apiserver.cel.library.conversions import double_text
from remuda.apiserver.cel.times import duration_text, parse_duration, parse_timestamp, timestamp_text
from remuda.apiserver.cel.values import INT_MAX, INT_MIN, UINT_MAX, CelError, Duration, Timestamp, Uint, equal

_INTS = st.integers(INT_MIN, INT_MAX) | st.sampled_from([INT_MIN, INT_MIN + 1, -1, 0, 1, INT_MAX])
_UINTS = (st.integers(0, UINT_MAX) | st.sampled_from([0, 1, UINT_MAX])).map(Uint)
_SCALARS = st.none() | st.booleans() | _INTS | _UINTS | st.floats(allow_nan=False) | st.text(max_size=5)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


def _impl(function: str, kind: str) -> Any:
    return next(o.impl for o in FUNCTIONS[function] if all(arg.kind == kind for arg in o.args))


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_EXACT: dict[str, Any] = {
    "_+_": lambda a, b: a + b,
    "_-_": lambda a, b: a - b,
    "_*_": lambda a, b: a * b,
    "_/_": _truncated,
    "_%_": lambda a, b: a - b * _truncated(a, b),
}


@pytest.mark.parametrize("function", _EXACT)
@given(_INTS, _INTS)
def test_int_arithmetic_is_exact_or_fails(function: str, a: int, b: int) -> None:
    if function in ("_/_", "_%_") and b == 0:
        with pytest.raises(CelError, match="by zero"):
            _impl(function, "int")(a, b)
        return
    exact = _EXACT[function](a, b)
    overflows = not INT_MIN <= exact <= INT_MAX or (function == "_%_" and (a, b) == (INT_MIN, -1))
    if overflows:
        with pytest.raises(CelError, match="integer overflow"):
            _impl(function, "int")(a, b)
    else:
        assert _impl(function, "int")(a, b) == exact


@pytest.mark.parametrize("function", ["_+_", "_-_", "_*_"])
@given(_UINTS, _UINTS)
def test_uint_arithmetic_is_exact_or_fails(function: str, a: Uint, b: Uint) -> None:
    exact = _EXACT[function](int(a), int(b))
    if 0 <= exact <= UINT_MAX:
        made = _impl(function, "uint")(a, b)
        assert made == exact
        assert type(made) is Uint
    else:
        with pytest.raises(CelError, match="unsigned integer overflow"):
            _impl(function, "uint")(a, b)


@given(_VALUES)
def test_equality_is_reflexive(value: Any) -> None:
    assert equal(value, value)


@given(_VALUES, _VALUES)
def test_equality_is_symmetric(a: Any, b: Any) -> None:
    assert equal(a, b) == equal(b, a)


@given(st.booleans(), _INTS)
def test_booleans_never_equal_numbers(flag: bool, number: int) -> None:
    assert not equal(flag, number)
    assert not equal([flag], [number])
    assert not equal({"a": flag}, {"a": number})


@given(st.integers(-(2**52), 2**52))
def test_duration_text_round_trips(ns: int) -> None:
    assert parse_duration(duration_text(Duration(ns))) == Duration(ns)


@given(st.integers(-62135596800 * 10**9, 253402300799 * 10**9))
def test_timestamp_text_round_trips(ns: int) -> None:
    assert parse_timestamp(timestamp_text(Timestamp(ns))) == Timestamp(ns)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_text_round_trips(value: float) -> None:
    assert float(double_text(value)) == value


def test_library_method_signature_is_parsed() -> None:
    library = Library()
    library.method("map(string, list(A)).take(A, optional(int)): type(A)", lambda *args: None)
    (made,) = library.overloads
    assert made.function == "take"
    assert [str(arg) for arg in made.args] == ["map(string, list(A))", "A", "optional_type(int)"]
    assert str(made.result) == "type(A)"
