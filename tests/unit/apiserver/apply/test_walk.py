"""Comparing values: properties that hold for any two objects of a kind."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.apply.fieldset import LEAF, difference, has, intersection, union
from remuda.apiserver.apply.merge import extract, merge, prune, without
from remuda.apiserver.apply.shape import ItemError, shape_of
from remuda.apiserver.apply.walk import claimed, compare_maps, everything
from remuda.kube.schema import Schema

from .schemas import WIDGET, keyed, kind, mapping, struct, text

STEADY = settings(deadline=None, max_examples=60)
SHAPE = shape_of(WIDGET)
TEXT = st.sampled_from(["1", "2"])


def _optional(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


def _keyed(name: str, keys: list[Any], **values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    item = st.fixed_dictionaries({name: st.sampled_from(keys)}, optional=values)
    return st.lists(item, max_size=4, unique_by=lambda found: found[name])


FREE = st.recursive(
    st.sampled_from(["x", 2, None]), lambda sub: st.dictionaries(st.sampled_from("ab"), sub), max_leaves=4
)
SPECS = _optional(
    mode=TEXT,
    items=_keyed("name", ["a", "b", "c"], value=TEXT, subs=_keyed("id", [1, 2], v=TEXT)),
    tags=st.lists(st.sampled_from("pqr"), unique=True),
    atoms=st.lists(TEXT, max_size=2),
    cfg=st.dictionaries(st.sampled_from("ab"), TEXT),
    frozen=_optional(a=TEXT, b=TEXT),
    free=st.dictionaries(st.sampled_from("ab"), FREE),
    nested=_optional(a=TEXT, b=_optional(c=TEXT, d=TEXT)),
    maps=st.dictionaries(st.sampled_from("mn"), _optional(p=TEXT, q=TEXT)),
)
OBJECTS = st.fixed_dictionaries({"apiVersion": st.just("t.dev/v1"), "spec": SPECS})


@STEADY
@given(OBJECTS)
def test_comparison_with_equal_object_is_empty(obj: dict[str, Any]) -> None:
    assert compare_maps(obj, copy.deepcopy(obj), SHAPE) == (None, None)


@STEADY
@given(OBJECTS, OBJECTS)
def test_comparison_reports_changed_fields_of_new_and_removed_fields_of_old(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    changed, removed = compare_maps(old, new, SHAPE)
    assert (old == new) == (changed is None and removed is None)
    assert not difference(changed or LEAF, everything(new, SHAPE))
    assert not difference(removed or LEAF, everything(old, SHAPE))
    assert not intersection(removed or LEAF, claimed(new, SHAPE) or LEAF)


@STEADY
@given(OBJECTS, OBJECTS)
def test_swapped_comparison_swaps_added_and_removed_fields(old: dict[str, Any], new: dict[str, Any]) -> None:
    changed, removed = compare_maps(old, new, SHAPE)
    changed_back, removed_back = compare_maps(new, old, SHAPE)
    appeared = difference(changed or LEAF, changed_back or LEAF)
    assert not difference(removed_back or LEAF, changed or LEAF)
    assert not difference(removed or LEAF, changed_back or LEAF)
    assert appeared == difference(removed_back or LEAF, changed_back or LEAF)


@STEADY
@given(OBJECTS, OBJECTS)
def test_merge_contains_the_applied_configuration(live: dict[str, Any], config: dict[str, Any]) -> None:
    before = copy.deepcopy([live, config])
    merged = merge(live, config, SHAPE)
    assert [live, config] == before
    _, removed = compare_maps(config, merged, SHAPE)
    assert removed is None
    assert not difference(claimed(config, SHAPE) or LEAF, everything(merged, SHAPE))
    assert merge(merged, config, SHAPE) == merged
    _, lost = compare_maps(live, merged, SHAPE)
    assert not intersection(lost or LEAF, claimed(config, SHAPE) or LEAF)


@STEADY
@given(OBJECTS)
def test_merge_with_identical_object_is_a_no_op(obj: dict[str, Any]) -> None:
    assert merge(obj, copy.deepcopy(obj), SHAPE) == obj
    fields = claimed(obj, SHAPE) or LEAF
    assert prune(obj, fields, fields, SHAPE) == obj


@STEADY
@given(OBJECTS)
def test_without_and_extract_split_object_by_owned_fields(obj: dict[str, Any]) -> None:
    gone = without(obj, {"f:spec": LEAF}, SHAPE)
    assert gone == {"apiVersion": "t.dev/v1"}
    assert extract(obj, {"f:spec": LEAF}, SHAPE) == {"spec": obj["spec"]}


def test_extract_keeps_only_owned_parts_of_lists_and_maps() -> None:
    obj = {
        "spec": {"mode": "m", "items": [{"name": "a", "value": "1", "extra": "e"}, {"name": "b"}], "cfg": {"a": "1"}}
    }
    owned = claimed({"spec": {"items": [{"name": "a", "value": "1"}]}}, SHAPE)
    assert extract(obj, owned or LEAF, SHAPE) == {"spec": {"items": [{"name": "a", "value": "1"}]}}


def test_repeated_items_are_owned_together() -> None:
    once = {"spec": {"items": [{"name": "a", "value": "1"}]}}
    twice = {"spec": {"items": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]}}
    marker = {"f:spec": {"f:items": {'k:{"name":"a"}': LEAF}}}
    changed, removed = compare_maps(once, twice, SHAPE)
    assert changed == marker
    assert removed == {"f:spec": {"f:items": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:value": {}}}}}
    assert claimed(twice, SHAPE) == marker
    again = {"spec": {"items": [{"name": "a", "value": "1"}, {"name": "a", "value": "3"}]}}
    assert compare_maps(twice, again, SHAPE) == (marker, None)


def test_list_item_without_key_error_names_its_index() -> None:
    with pytest.raises(ItemError, match="element 1: associative list with keys has an element that omits all key"):
        everything({"spec": {"items": [{"name": "a"}, {"value": "x"}]}}, SHAPE)


def test_cyclic_schemas_compile() -> None:
    node = Schema(type="object", properties={"name": text()})
    node.properties["children"] = keyed(node, "name")
    node.properties["by"] = mapping(node)
    shape = shape_of(kind(spec=node))
    value = {"spec": {"children": [{"name": "a", "children": [{"name": "b"}], "by": {"k": {"name": "c"}}}]}}
    path = ("f:spec", "f:children", 'k:{"name":"a"}', "f:by", "f:k", "f:name")
    assert has(everything(value, shape), path)


def test_embedded_resource_metadata_uses_object_meta_shape() -> None:
    shape = shape_of(kind(spec=Schema(type="object", embedded_resource=True, preserve_unknown=True)))
    value = {"spec": {"kind": "X", "metadata": {"finalizers": ["a"]}, "data": {"k": [1]}}}
    expected = {"f:spec": {"f:data": {".": {}, "f:k": {}}, "f:kind": {}, "f:metadata": {"f:finalizers": {'v:"a"': {}}}}}
    assert claimed(value, shape) == expected


def test_flat_struct_fields_include_only_present_keys() -> None:
    shape = shape_of(struct(a=text(), b=text()))
    assert everything({"a": "1"}, shape) == {".": {}, "f:a": {}}
    assert everything({"b": "1", "a": "1"}, shape) == {".": {}, "f:a": {}, "f:b": {}}
    assert union(everything({"a": "1"}, shape), LEAF) == {".": {}, "f:a": {}}


def test_number_and_boolean_differ_in_untyped_fields() -> None:
    one, true = {"spec": {"free": {"a": [1], "b": 1}}}, {"spec": {"free": {"a": [True], "b": True}}}
    assert compare_maps(one, true, SHAPE) == ({"f:spec": {"f:free": {"f:a": {}, "f:b": {}}}}, None)
    assert merge(one, true, SHAPE)["spec"]["free"]["b"] is True
    assert compare_maps(one, {"spec": {"free": {"a": [1.0], "b": 1.0}}}, SHAPE) == (None, None)
