"""Merge patch: the RFC's table, the server's treatment of nulls, and the round trip."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.errors import StatusError
from remuda.kube.patches import apply_merge_patch, copy_json, create_merge_patch
from remuda.kube.patches.json_copy import same_json

SCALARS = st.one_of(st.booleans(), st.integers(-5, 5), st.sampled_from(["", "a", "b"]), st.floats(0, 1))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)
PATCHES = st.dictionaries(
    st.sampled_from("abcd"),
    st.recursive(
        SCALARS | st.none(),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    ),
    max_size=4,
)


@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": [1]}, {"a": [{"x": None, "y": 1}, None]}, {"a": [{"y": 1}, None]}),
        ({"a": {"b": 1}}, {"a": [{"x": None}]}, {"a": [{"x": None}]}),
    ],
)
def test_merge_patch_follows_rfc_and_server_null_handling(
    original: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    assert apply_merge_patch(original, patch) == result


@given(OBJECTS, OBJECTS)
def test_created_merge_patch_transforms_before_into_after(before: dict[str, Any], after: dict[str, Any]) -> None:
    patch = create_merge_patch(before, after)
    assert same_json(apply_merge_patch(before, patch), after)
    assert bool(patch) == (not same_json(before, after))


@given(OBJECTS, PATCHES)
def test_merge_patch_does_not_modify_or_share_inputs(original: dict[str, Any], patch: dict[str, Any]) -> None:
    before, given_patch = copy_json(original), copy_json(patch)
    result = apply_merge_patch(original, patch)
    _scribble(result)
    assert (original, patch) == (before, given_patch)


@given(OBJECTS, PATCHES)
def test_merge_patch_is_idempotent_after_second_application(original: dict[str, Any], patch: dict[str, Any]) -> None:
    """From the second time on: a list that replaces an object keeps its nulls the first time (see the table)."""
    settled = apply_merge_patch(apply_merge_patch(original, patch), patch)
    assert same_json(apply_merge_patch(settled, patch), settled)


def _scribble(value: Any) -> None:
    children = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    for child in children:
        _scribble(child)
    if isinstance(value, dict | list):
        value.clear()


def test_merge_patch_in_place_returns_the_original_object() -> None:
    original = {"a": 1}
    assert apply_merge_patch(original, {"b": 2}, in_place=True) is original


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (None, "Invalid JSON Patch"),
        ([], "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ("x", "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}"),
    ],
)
def test_malformed_merge_patch_is_a_bad_request(patch: Any, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        apply_merge_patch({}, patch)
    assert (caught.value.code, caught.value.message) == (400, message)


def test_extremely_deep_merge_patch_is_rejected() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(StatusError) as caught:
        apply_merge_patch({}, deep)
    assert caught.value.code == 400
