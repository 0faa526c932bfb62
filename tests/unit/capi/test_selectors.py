from __future__ import annotations

from remuda.capi import selectors
from remuda.capi.types import Selector, SelectorRequirement

NONSENSE = Selector(match_expressions=[SelectorRequirement(key="a", operator="Near")])


def test_selector_compilation_is_cached() -> None:
    first = selectors.compiled(Selector(match_labels={"a": "1"}))
    assert first is not None
    assert str(first) == "a=1"
    assert selectors.compiled(Selector(match_labels={"a": "1"})) is first


def test_invalid_selector_compiles_to_none() -> None:
    assert selectors.compiled(NONSENSE) is None
    assert selectors.selective(NONSENSE) is None


def test_empty_selector_is_not_selective() -> None:
    assert selectors.compiled(Selector()) is not None
    assert selectors.selective(Selector()) is None
    assert selectors.selective(Selector(match_labels={"a": "1"})) is not None
