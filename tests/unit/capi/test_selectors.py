from __future__ import annotations

from remuda.capi.types import Selector, SelectorRequirement, shared

NONSENSE = Selector(match_expressions=[SelectorRequirement(key="a", operator="Near")])


def test_selector_compilation_is_cached() -> None:
    first = shared.compiled_selector(Selector(match_labels={"a": "1"}))
    assert first is not None
    assert str(first) == "a=1"
    assert shared.compiled_selector(Selector(match_labels={"a": "1"})) is first


def test_invalid_selector_compiles_to_none() -> None:
    assert shared.compiled_selector(NONSENSE) is None
    assert shared.selective_selector(NONSENSE) is None


def test_empty_selector_is_not_selective() -> None:
    assert shared.compiled_selector(Selector()) is not None
    assert shared.selective_selector(Selector()) is None
    assert shared.selective_selector(Selector(match_labels={"a": "1"})) is not None
