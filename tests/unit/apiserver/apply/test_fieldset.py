"""Properties of sets of field paths, checked against plain Python sets of paths."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.apply import element as elements
from remuda.apiserver.apply import fieldset as fs

STEADY = settings(deadline=None, max_examples=60)
ELEMENTS = ["f:a", "f:b", 'k:{"name":"x"}', 'k:{"name":"y"}', 'v:"s"', "v:10", "v:9", "i:0"]
PATHS = st.lists(st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=3).map(tuple), max_size=8).map(set)


def _set(paths: set[fs.Path]) -> fs.Fields:
    return fs.of_paths(sorted(paths))


def _paths(fields: fs.Fields) -> set[fs.Path]:
    listed = list(fs.members(fields))
    assert len(listed) == len(set(listed))
    return set(listed)


def _assert_well_formed(fields: fs.Fields, top: bool = True) -> None:
    keys = list(fields)
    assert keys == sorted(keys, key=lambda key: (key != fs.SELF, _rank(key)))
    assert not (top and fs.SELF in fields)
    assert keys != [fs.SELF]
    for key, sub in fields.items():
        if key != fs.SELF:
            _assert_well_formed(sub, top=False)


def _rank(key: str) -> tuple[int, Any]:
    if key == fs.SELF:
        return (0, 0)
    kind = "fkvi".index(key[0])
    if key[0] == "v":
        value = json.loads(key[2:])
        return (kind, (isinstance(value, str), value))
    return (kind, key)


@STEADY
@given(PATHS)
def test_field_set_contains_exactly_its_paths(paths: set[fs.Path]) -> None:
    fields = _set(paths)
    _assert_well_formed(fields)
    assert _paths(fields) == paths
    assert all(fs.has(fields, path) for path in paths)
    assert not fs.has(fields, ())
    assert fs.parse(json.loads(json.dumps(fields))) == fields


@STEADY
@given(PATHS, PATHS)
def test_field_set_operations_match_path_set_operations(one: set[fs.Path], other: set[fs.Path]) -> None:
    operations = [(fs.union, one | other), (fs.difference, one - other), (fs.intersection, one & other)]
    for operation, expected in operations:
        result = operation(_set(one), _set(other))
        _assert_well_formed(result)
        assert _paths(result) == expected


def _below(path: fs.Path, others: set[fs.Path]) -> bool:
    return any(path[: len(other)] == other for other in others)


@STEADY
@given(PATHS, PATHS)
def test_recursive_difference_removes_all_descendants(one: set[fs.Path], other: set[fs.Path]) -> None:
    result = fs.recursive_difference(_set(one), _set(other))
    _assert_well_formed(result)
    assert _paths(result) == {path for path in one if not _below(path, other)}


@STEADY
@given(PATHS, PATHS)
def test_taken_away_removes_leaf_paths_with_their_descendants(one: set[fs.Path], other: set[fs.Path]) -> None:
    pieces = {path for path in other if not any(path != longer and longer[: len(path)] == path for longer in other)}
    result = fs.taken_away(_set(one), _set(other))
    _assert_well_formed(result)
    assert _paths(result) == {path for path in one - other if not _below(path, pieces)}


@STEADY
@given(PATHS, PATHS)
def test_overlaid_equals_taken_away_plus_union(one: set[fs.Path], other: set[fs.Path]) -> None:
    result = fs.overlaid(_set(one), _set(other))
    _assert_well_formed(result)
    assert result == fs.union(fs.taken_away(_set(one), _set(other)), _set(other))


@STEADY
@given(PATHS)
def test_leaves_have_no_descendants(paths: set[fs.Path]) -> None:
    expected = {path for path in paths if not any(len(o) > len(path) and o[: len(path)] == path for o in paths)}
    assert _paths(fs.leaves(_set(paths))) == expected


@STEADY
@given(PATHS, PATHS)
def test_field_set_operations_do_not_modify_operands(one: set[fs.Path], other: set[fs.Path]) -> None:
    left, right = _set(one), _set(other)
    before = json.dumps([left, right])
    for operation in (fs.union, fs.difference, fs.intersection, fs.recursive_difference, fs.taken_away):
        operation(left, right)
    assert json.dumps([left, right]) == before


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ('k:{ "name":"x" }', 'k:{"name":"x"}'),
        ('k:{"b":1,"a":"<"}', 'k:{"a":"\\u003c","b":1}'),
        ('k:{"port":1.0}', 'k:{"port":1}'),
        ("v:1.50", "v:1.5"),
        ("v:1e21", "v:1e+21"),
        ("v:0.0000001", "v:1e-07"),
        ('v:"\\u0008"', 'v:"\\u0008"'),
        ("v:true", "v:true"),
        ("v:null", "v:null"),
        ("i:007", "i:7"),
        ("f:any thing", "f:any thing"),
    ],
)
def test_path_elements_are_canonicalized(written: str, canonical: str) -> None:
    assert elements.canonical(written) == canonical
    assert elements.canonical(canonical) == canonical


@pytest.mark.parametrize("bad", ["", "f", "name", "k:{", "k:[]", "v:", "i:x"])
def test_invalid_path_elements_are_rejected(bad: str) -> None:
    with pytest.raises(elements.BadElement):
        fs.parse({bad: {}})


def test_elements_of_unknown_kinds_are_dropped() -> None:
    assert fs.parse({"z:what": {}, "f:a": {"z:b": {}}}) == {"f:a": {}}


def test_non_object_fields_v1_is_rejected() -> None:
    documents: list[Any] = [[], "x", {"f:a": 1}]
    for bad in documents:
        with pytest.raises(elements.BadElement):
            fs.parse(bad)


def test_equivalent_path_elements_are_merged() -> None:
    assert fs.parse({'k:{"a":1}': {"f:x": {}}, 'k:{"a":1.0}': {}}) == {'k:{"a":1}': {".": {}, "f:x": {}}}


def test_elements_are_sorted_by_kind_and_then_by_value() -> None:
    keys = [
        "i:2",
        "i:10",
        'v:"a"',
        "v:10",
        "v:9",
        "v:true",
        'k:{"p":80}',
        'k:{"p":443}',
        'k:{"n":"a!"}',
        'k:{"n":"a"}',
        "f:z",
    ]
    expected = [
        "f:z",
        'k:{"n":"a"}',
        'k:{"n":"a!"}',
        'k:{"p":80}',
        'k:{"p":443}',
        "v:9",
        "v:10",
        'v:"a"',
        "v:true",
        "i:2",
        "i:10",
    ]
    assert list(fs.ordered(dict.fromkeys(keys, fs.LEAF))) == expected


def test_field_path_is_formatted_as_in_conflict_messages() -> None:
    path = ("f:spec", 'k:{"name":"a\\nb","port":80}', 'v:"ü"', "i:3")
    assert fs.shown_path(path) == '.spec[name="a\\nb",port=80][="ü"][3]'
