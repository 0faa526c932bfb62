"""Strategic merge patch on a pod-like schema: keyed lists, directives, order, complaints."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.errors import StatusError
from remuda.kube.patches import apply_strategic_patch, copy_json
from remuda.kube.schema import OBJECT_META, Schema

TEXT = Schema(type="string")
PORT = Schema(type="object", properties={"containerPort": Schema(type="integer"), "name": TEXT})
CONTAINER = Schema(
    type="object",
    properties={
        "name": TEXT,
        "image": TEXT,
        "args": Schema(type="array", items=TEXT),
        "ports": Schema(type="array", items=PORT, patch_strategy=("merge",), patch_merge_key="containerPort"),
    },
)
POD = Schema(
    type="object",
    properties={
        "metadata": OBJECT_META,
        "spec": Schema(
            type="object",
            properties={
                "containers": Schema(type="array", items=CONTAINER, patch_strategy=("merge",), patch_merge_key="name"),
                "strategy": Schema(type="object", patch_strategy=("retainKeys",), properties={"type": TEXT}),
                "whole": Schema(type="object", patch_strategy=("replace",), properties={"a": TEXT}),
            },
        ),
    },
)


def containers(*names: str, **more: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, **more} for name in names]}}


def patched(original: dict[str, Any], patch: dict[str, Any]) -> Any:
    return apply_strategic_patch(original, patch, POD)


def names_after(original: dict[str, Any], patch: dict[str, Any]) -> list[str]:
    return [item["name"] for item in patched(original, patch)["spec"]["containers"]]


def test_elements_merge_by_key() -> None:
    result = patched(containers("a", "b", image="1"), containers("b", image="2"))
    assert result == {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}}


def test_nested_keyed_lists_merge() -> None:
    original = containers("a", ports=[{"containerPort": 80, "name": "web"}])
    result = patched(original, containers("a", ports=[{"containerPort": 443}, {"containerPort": 80, "name": None}]))
    assert result["spec"]["containers"][0]["ports"] == [{"containerPort": 443}, {"containerPort": 80}]


def test_new_list_elements_are_prepended_and_existing_order_is_kept() -> None:
    assert names_after(containers("a", "b", "c"), containers("x", "b")) == ["x", "a", "b", "c"]
    assert names_after(containers("a", "b", "c"), containers("c", "a")) == ["b", "c", "a"]


def test_plain_lists_are_replaced() -> None:
    result = patched(containers("a", args=["x", "y"]), containers("a", args=["z"]))
    assert result["spec"]["containers"][0]["args"] == ["z"]


def test_scalars_merge_without_duplicates() -> None:
    result = patched({"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"finalizers": ["c", "b"]}})
    assert result["metadata"]["finalizers"] == ["c", "a", "b"]


def test_delete_directive_removes_list_element_by_key() -> None:
    patch = {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}
    assert names_after(containers("a", "b"), patch) == ["b"]
    assert names_after(containers("b"), patch) == ["b"]


def test_replace_directive_replaces_keyed_list() -> None:
    patch = {"spec": {"containers": [{"$patch": "replace"}, {"name": "x"}]}}
    assert names_after(containers("a", "b"), patch) == ["x"]


def test_replace_and_delete_directives_apply_to_objects() -> None:
    original = {"metadata": {"labels": {"a": "1"}, "name": "n"}}
    assert patched(original, {"metadata": {"labels": {"$patch": "replace", "b": "2"}}}) == {
        "metadata": {"labels": {"b": "2"}, "name": "n"}
    }
    assert patched(original, {"metadata": {"labels": {"$patch": "delete"}}}) == {
        "metadata": {"labels": {}, "name": "n"}
    }
    assert patched({}, {"metadata": {"labels": {"$patch": "delete"}}}) == {"metadata": {}}


def test_replace_strategy_replaces_the_whole_object() -> None:
    assert patched({"spec": {"whole": {"a": "1"}}}, {"spec": {"whole": {"b": "2"}}}) == {"spec": {"whole": {"b": "2"}}}


def test_null_removes_field_and_is_dropped_from_new_values() -> None:
    assert patched({"metadata": {"labels": {"a": "1"}}}, {"metadata": {"labels": None}}) == {"metadata": {}}
    assert patched({}, {"metadata": {"labels": {"a": None, "b": "1"}}}) == {"metadata": {"labels": {"b": "1"}}}


def test_retain_keys_directive_removes_other_keys() -> None:
    original = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"max": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert patched(original, patch) == {"spec": {"strategy": {"type": "Recreate"}}}


def test_delete_from_primitive_list_directive_removes_scalars() -> None:
    original = {"metadata": {"finalizers": ["a", "b", "c"]}}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "z"]}}
    assert patched(original, patch) == {"metadata": {"finalizers": ["b", "c"]}}


def test_set_element_order_directive_orders_keyed_list() -> None:
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
            "containers": [{"name": "c", "image": "2"}],
        }
    }
    assert names_after(containers("a", "b", "c"), patch) == ["b", "c", "a"]
    only_order = {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}]}}
    assert names_after(containers("a", "b", "c"), only_order) == ["c", "b", "a"]


def test_set_element_order_directive_orders_scalar_list() -> None:
    patch = {"metadata": {"$setElementOrder/finalizers": ["b", "c", "a"], "finalizers": ["c"]}}
    result = patched({"metadata": {"finalizers": ["a", "b"]}}, patch)
    assert result["metadata"]["finalizers"] == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        (
            {"spec": {"containers": [{"image": "x"}]}},
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        ({"spec": {"$patch": "merge"}}, 500, "unknown patch type: merge in map: map[$patch:merge]"),
        ({"spec": {"containers": [{"name": "a", "$patch": "x"}]}}, 500, None),
        ({"spec": {"containers": [{"$patch": "delete"}]}}, 500, None),
        ({"spec": {"containers": [[]]}}, 422, None),
        ({"spec": {"containers": ["a"]}}, 500, None),
        ({"spec": {"$retainKeys": "x"}}, 400, "invalid patch format of retainKeys"),
        ({"spec": {"$retainKeys": ["x"], "y": 1}}, 400, "invalid patch format of retainKeys"),
        ({"spec": {"$deleteFromPrimitiveList": ["x"]}}, 400, "invalid patch format of primitive list"),
        ({"spec": {"$setElementOrder": []}}, 400, "invalid patch format of setElementOrder list"),
        ({"spec": {"$setElementOrder/containers": "x"}}, 500, "expected a []interface {}, but received a string"),
        (
            {"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}},
            500,
            "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
        ),
        ([], 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ],
)
def test_invalid_strategic_patches_are_rejected(patch: Any, code: int, message: str | None) -> None:
    with pytest.raises(StatusError) as caught:
        apply_strategic_patch(containers("a"), patch, POD)
    assert caught.value.code == code
    assert message is None or caught.value.message == message


NAMES = st.lists(st.sampled_from("abcde"), unique=True, max_size=5)


@given(NAMES, NAMES, NAMES)
def test_merged_lists_contain_both_inputs_in_their_order(live: list[str], patch: list[str], deleted: list[str]) -> None:
    doomed = [name for name in deleted if name not in patch]
    elements = [{"name": name} for name in patch] + [{"name": name, "$patch": "delete"} for name in doomed]
    original, given_patch = containers(*live), {"spec": {"containers": elements}}
    before, patch_before = copy_json(original), copy_json(given_patch)
    result = names_after(original, given_patch)
    assert sorted(result) == sorted((set(live) - set(doomed)) | set(patch))
    assert [name for name in result if name in patch] == patch
    rest = [name for name in live if name not in patch and name not in doomed]
    assert [name for name in result if name not in patch] == rest
    assert (original, given_patch) == (before, patch_before)


@given(NAMES, NAMES)
def test_strategic_patch_is_idempotent(live: list[str], patch: list[str]) -> None:
    once = patched(containers(*live), containers(*patch, image="2"))
    assert patched(once, containers(*patch, image="2")) == once


def test_deleting_many_elements_is_not_quadratic() -> None:
    original = {"spec": {"containers": [{"name": f"c{n}", "image": "x"} for n in range(10_000)]}}
    patch = {"spec": {"containers": [{"name": f"c{n}", "$patch": "delete"} for n in range(1, 10_000)]}}
    started = time.process_time()
    assert patched(original, patch) == {"spec": {"containers": [{"name": "c0", "image": "x"}]}}
    assert time.process_time() - started < 1  # one pass for each takes ten seconds
