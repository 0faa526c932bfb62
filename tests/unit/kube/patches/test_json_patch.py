"""JSON patch: every operation, the liberties upstream takes, the limits."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.errors import StatusError
from remuda.kube.patches import apply_json_patch, copy_json, create_json_patch
from remuda.kube.patches.json_copy import same_json


def op(kind: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": kind, "path": path, **more}


@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        ({}, [op("add", "/a", value=1)], {"a": 1}),
        ({"a": [1, 3]}, [op("add", "/a/1", value=2)], {"a": [1, 2, 3]}),
        ({"a": [1]}, [op("add", "/a/-", value=2)], {"a": [1, 2]}),
        ({"a": [1]}, [op("add", "/a/-1", value=2)], {"a": [1, 2]}),
        ({"a": 1}, [op("add", "/a", value=2)], {"a": 2}),
        ({}, [op("add", "/a")], {"a": None}),
        ({"a": 1}, [op("remove", "/a")], {}),
        ({"a": [1, 2]}, [op("remove", "/a/0")], {"a": [2]}),
        ({"a": [1, 2]}, [op("remove", "/a/-1")], {"a": [1]}),
        ({"a": 1}, [op("replace", "/a", value=2)], {"a": 2}),
        ({}, [op("replace", "/a", value=2)], {"a": 2}),
        ({"a": 1}, [op("replace", "", value={"b": 2})], {"b": 2}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": [1, 2]}, [{"op": "move", "from": "/a/0", "path": "/a/1"}], {"a": [2, 1]}),
        ({"a": {"x": 1}}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": {"x": 1}, "b": {"x": 1}}),
        ({}, [{"op": "copy", "from": "/a", "path": "/b"}], {"b": None}),
        ({"a": {"b": [1]}}, [op("test", "/a", value={"b": [1]})], {"a": {"b": [1]}}),
        ({}, [op("test", "/a", value=None)], {}),
        ({"a": 1}, [op("test", "", value={"a": 1})], {"a": 1}),
        ({"a/b": {"~": 1}}, [op("replace", "/a~1b/~0", value=2)], {"a/b": {"~": 2}}),
        ({"": 1}, [op("remove", "/")], {}),
        ({"a": 1}, [], {"a": 1}),
    ],
)
def test_json_patch_operations_are_applied(original: dict[str, Any], patch: list[Any], result: dict[str, Any]) -> None:
    assert apply_json_patch(original, patch) == result


@pytest.mark.parametrize(
    ("original", "patch"),
    [
        ({"a": 1}, [op("test", "/a", value=2)]),
        ({"a": 1}, [op("test", "/a", value=True)]),
        ({"a": 1}, [op("test", "/a", value=1.0)]),
        ({"a": 1}, [op("test", "/a")]),
        ({}, [op("remove", "/a")]),
        ({}, [op("add", "/a/b", value=1)]),
        ({"a": None}, [op("add", "/a/b", value=1)]),
        ({"a": "x"}, [op("add", "/a/b", value=1)]),
        ({"a": []}, [op("remove", "/a/0")]),
        ({"a": []}, [op("replace", "/a/-", value=1)]),
        ({"a": []}, [op("add", "/a/1", value=1)]),
        ({"a": []}, [op("add", "/a/x", value=1)]),
        ({"a": []}, [op("add", "/a/" + "9" * 5000, value=1)]),
        ({}, [op("add", "", value={})]),
        ({}, [op("add", "a", value=1)]),
        ({}, [{"op": "add", "value": 1}]),
        ({"a": 1}, [{"op": "move", "path": "/b"}]),
        ({}, [{"op": "move", "from": "/a", "path": "/b"}]),
        ({"a": {}}, [{"op": "move", "from": "/a", "path": "/a/b"}]),
        ({}, [op("frobnicate", "/a")]),
        ({}, [None]),
        ({}, [op("replace", "", value=[])]),
    ],
)
def test_inapplicable_json_patch_returns_422_and_keeps_original(original: dict[str, Any], patch: list[Any]) -> None:
    before = copy_json(original)
    with pytest.raises(StatusError) as caught:
        apply_json_patch(original, patch)
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert caught.value.message == "the server rejected our request due to an error in our request"
    assert original == before


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({}, "cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        (["x"], "cannot unmarshal string into Go value of type handlers.jsonPatchOp"),
        ([{"op": "add", "path": 1}], "cannot unmarshal number into Go struct field jsonPatchOp.path of type string"),
    ],
)
def test_malformed_json_patch_is_a_bad_request(patch: Any, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        apply_json_patch({}, patch)
    assert (caught.value.code, caught.value.message) == (400, f"error decoding patch: json: {message}")


@pytest.mark.parametrize("root", [98, None, "text", True])
@pytest.mark.parametrize(
    "following",
    [
        op("add", "/a", value=1),
        op("remove", "/a"),
        op("replace", "/a"),
        op("test", "/a"),
        op("copy", "/b", **{"from": "/a"}),
    ],
)
def test_json_patch_operation_on_scalar_root_returns_422(root: Any, following: dict[str, Any]) -> None:
    """It was answered with a 500."""
    with pytest.raises(StatusError) as caught:
        apply_json_patch({"a": 1}, [op("replace", "", value=root), following])
    assert caught.value.code == 422


def test_json_patch_with_too_many_operations_is_rejected() -> None:
    assert apply_json_patch({}, [op("add", "/a", value=1)] * 10_000) == {"a": 1}
    with pytest.raises(StatusError) as caught:
        apply_json_patch({}, [op("add", "/a", value=1)] * 10_001)
    assert caught.value.code == 413
    assert caught.value.message.endswith("The allowed maximum operations in a JSON patch is 10000, got 10001")


def test_json_patch_copies_are_limited_in_size() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 60
    with pytest.raises(StatusError) as caught:
        apply_json_patch({"a": ["x" * 100]}, doubling)
    assert caught.value.code == 422


VALUES = st.recursive(
    st.integers(0, 3), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner)
)
POINTERS = st.lists(st.sampled_from(["a", "b", "0", "1", "-", "-1"]), min_size=1, max_size=3).map(
    lambda parts: "/" + "/".join(parts)
)
OPERATIONS = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": POINTERS, "from": POINTERS},
    optional={"value": VALUES},
)


@given(st.dictionaries(st.sampled_from("ab"), VALUES), st.lists(OPERATIONS, max_size=4))
def test_json_patch_applies_or_is_rejected_without_modifying_inputs(original: dict[str, Any], patch: list[Any]) -> None:
    before, given_patch = copy_json(original), copy_json(patch)
    code = 200
    try:
        apply_json_patch(original, patch).clear()
    except StatusError as error:
        code = error.code
    assert code in (200, 422)
    assert (original, patch) == (before, given_patch)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b/c", "~d", ""]), inner),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.sampled_from(["a", "b/c", "~1", "e"]), _VALUES)


@given(_OBJECTS, _OBJECTS)
def test_created_json_patch_transforms_before_into_after(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert same_json(apply_json_patch(before, create_json_patch(before, after)), after)
    assert create_json_patch(after, after) == []


def test_created_json_patch_contains_only_differences() -> None:
    before = {"a": {"b": 1, "c": [1]}, "d": 1, "same": {"x": 1}}
    after = {"a": {"b": 2, "c": [1, 2]}, "e": {}, "same": {"x": 1}}
    assert create_json_patch(before, after) == [
        op("remove", "/d"),
        op("replace", "/a/b", value=2),
        op("replace", "/a/c", value=[1, 2]),
        op("add", "/e", value={}),
    ]


def test_json_patch_nested_list_copies_are_rejected_quickly() -> None:
    copies = [{"op": "copy", "from": "/l", "path": "/l/-"} for _ in range(9_000)]
    started = time.process_time()
    with pytest.raises(StatusError, match="the server rejected our request"):
        apply_json_patch({"l": ["a"]}, copies)
    assert time.process_time() - started < 0.5
