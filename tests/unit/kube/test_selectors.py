"""Selectors: the grammar, its complaints, and what matches."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.cost import Budget
from remuda.kube.errors import StatusError
from remuda.kube.selectors import (
    EVERYTHING,
    NOTHING,
    FieldRequirement,
    FieldSelector,
    LabelSelector,
    Requirement,
    SelectorError,
    escape_field_value,
    label_selector_from,
    label_selector_from_labels,
    parse_field_selector,
    parse_label_selector,
    validate_label_selector,
)

LABELS = {"app": "web", "tier": "back", "size": "10", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app = web , tier = back", True),
        ("app!=web", False),
        ("missing!=x", True),
        ("app", True),
        ("!app", False),
        ("missing", False),
        ("!missing", True),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("app notin (db)", True),
        ("app notin (web)", False),
        ("missing notin (a)", True),
        ("empty in ()", True),
        ("empty in (,)", True),
        ("empty=", True),
        ("empty=,app=web", True),
        ("app=", False),
        ("size>9", True),
        ("size>10", False),
        ("size<11", True),
        ("app>1", False),
        ("missing<1", False),
        ("in in (in,notin)", False),
        ("app=in", False),
    ],
)
def test_label_selectors_match_labels(text: str, matches: bool) -> None:
    assert parse_label_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("=web", "found '=', expected: !, identifier, or 'end of string'"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a>=1", "unable to parse requirement: found '=', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, "
            "the value must be an integer",
        ),
    ],
)
def test_invalid_label_selectors_are_rejected_with_message(text: str, complaint: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_label_selector(text)
    assert str(caught.value) == complaint
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")


def test_invalid_label_keys_and_values_are_explained() -> None:
    with pytest.raises(SelectorError, match=r'^unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid la'):
        parse_label_selector("a/b/c=d")
    with pytest.raises(
        SelectorError, match=r'^unable to parse requirement: values\[0\]\[a\]: Invalid value: "-": a va'
    ):
        parse_label_selector("a=-")


def test_long_hostile_selector_is_rejected() -> None:
    with pytest.raises(SelectorError):
        parse_label_selector("a in (" + "b," * 30_000)
    with pytest.raises(SelectorError):
        parse_label_selector("!" * 60_000)


KEYS = st.sampled_from(["a", "b", "in", "notin", "x/a", "example.com/b"])
VALUES = st.sampled_from(["", "1", "5", "in", "a.b_c-d", "Z"])
REQUIREMENTS = st.one_of(
    st.builds(Requirement, KEYS, st.sampled_from(["=", "==", "!="]), st.tuples(VALUES)),
    st.builds(
        lambda key, operator, values: Requirement(key, operator, tuple(sorted(set(values)))),
        KEYS,
        st.sampled_from(["in", "notin"]),
        st.lists(VALUES, min_size=1, max_size=4),
    ),
    st.builds(Requirement, KEYS, st.sampled_from(["exists", "!"]), st.just(())),
    st.builds(Requirement, KEYS, st.sampled_from(["gt", "lt"]), st.tuples(st.integers(0, 99).map(str))),
)


@given(st.lists(REQUIREMENTS, max_size=5), st.dictionaries(KEYS, VALUES, max_size=4))
def test_printed_label_selector_parses_to_an_equal_selector(
    requirements: list[Requirement], labels: dict[str, str]
) -> None:
    selector = LabelSelector(requirements)
    again = parse_label_selector(str(selector))
    assert again == selector
    assert again.matches(labels) == selector.matches(labels)


def test_api_label_selector_is_converted() -> None:
    selector = label_selector_from(
        {
            "matchLabels": {"b": "1"},
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["y", "x"]},
                {"key": "c", "operator": "DoesNotExist"},
            ],
        }
    )
    assert str(selector) == "a in (x,y),b=1,!c"
    assert selector.matches({"a": "x", "b": "1"})
    assert not selector.matches({"a": "x", "b": "1", "c": ""})


def test_absent_selector_matches_nothing_and_empty_selector_matches_all() -> None:
    assert label_selector_from(None) is NOTHING
    assert not NOTHING.matches({})
    assert label_selector_from({}) is EVERYTHING
    assert EVERYTHING.matches({})


def test_unknown_selector_operator_is_rejected() -> None:
    with pytest.raises(SelectorError, match='"Near" is not a valid label selector operator'):
        label_selector_from({"matchExpressions": [{"key": "a", "operator": "Near"}]})


def test_plain_labels_become_a_selector() -> None:
    assert str(label_selector_from_labels({"b": "2", "a": "1"})) == "a=1,b=2"


def test_selector_reports_exact_values() -> None:
    selector = parse_label_selector("a=1,b in (2),c in (3,4),d!=5")
    assert [selector.exact(key) for key in "abcdx"] == ["1", "2", None, None, None]


def test_label_selector_fields_of_objects_are_validated() -> None:
    bad = {
        "matchLabels": {"a b": "x"},
        "matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["x"]},
            {"key": "", "operator": "Near"},
            {"key": "a", "operator": "In", "values": ["-"]},
        ],
    }
    assert [(e.path, e.kind) for e in validate_label_selector(bad, "s")] == [
        ("s.matchLabels", "FieldValueInvalid"),
        ("s.matchExpressions[0].values", "FieldValueRequired"),
        ("s.matchExpressions[1].values", "FieldValueForbidden"),
        ("s.matchExpressions[2].operator", "FieldValueInvalid"),
        ("s.matchExpressions[2].key", "FieldValueInvalid"),
        ("s.matchExpressions[2].key", "FieldValueInvalid"),
        ("s.matchExpressions[3].values[0]", "FieldValueInvalid"),
    ]
    assert validate_label_selector({"matchLabels": {"a": "b"}}, "s") == []


def test_field_selectors_match_fields() -> None:
    selector = parse_field_selector("metadata.name=a,status.phase!=Failed")
    assert selector.matches({"metadata.name": "a", "status.phase": "Running"})
    assert selector.matches({"metadata.name": "a"})
    assert not selector.matches({"metadata.name": "a", "status.phase": "Failed"})
    assert not selector.matches({})
    assert parse_field_selector("metadata.name==a").exact("metadata.name") == "a"
    assert selector.exact("status.phase") is None
    assert parse_field_selector("a=").matches({})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nonsense", "invalid selector: 'nonsense'; can't understand 'nonsense'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ("a=\\x", "invalid field selector: invalid escape sequence: \\x"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_invalid_field_selectors_are_rejected_with_message(text: str, complaint: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_field_selector(text)
    assert str(caught.value) == complaint


FIELD_REQUIREMENTS = st.builds(
    FieldRequirement, st.text("ab.", min_size=1, max_size=4), st.sampled_from(["=", "!="]), st.text(max_size=6)
)


@given(st.lists(FIELD_REQUIREMENTS, max_size=4))
def test_printed_field_selector_parses_to_an_equal_selector(requirements: list[FieldRequirement]) -> None:
    selector = FieldSelector(requirements)
    again = parse_field_selector(str(selector))
    assert sorted(again.requirements) == sorted(selector.requirements)


@given(st.text())
def test_escaped_field_values_round_trip(value: str) -> None:
    assert parse_field_selector("f=" + escape_field_value(value)).exact("f") == value


@pytest.mark.parametrize(
    ("parse", "text", "complaint"),
    [
        (parse_label_selector, "a=b," * 250 + "a", "too many requirements: must have at most 250"),
        (parse_label_selector, "a," * 30_000 + "a", "too many requirements: must have at most 250"),
        (parse_label_selector, f"a in ({','.join(map(str, range(5001)))})", "too many values: must have at most 5000"),
        (parse_label_selector, "a=b," * 700_000, "too long: must have at most 65536 bytes"),
        (parse_field_selector, "a=b," * 250 + "a=b", "too many requirements: must have at most 250"),
        (parse_field_selector, "a=b," * 700_000, "too long: must have at most 65536 bytes"),
    ],
)
def test_selector_above_a_limit_is_a_bad_request(parse: Any, text: str, complaint: str) -> None:
    started = time.process_time()
    with pytest.raises(StatusError) as caught:
        parse(text)
    assert time.process_time() - started < 0.5
    assert not isinstance(caught.value, SelectorError)  # which reviews would take for one that is only ignored
    assert caught.value.code == 400
    assert complaint in caught.value.message


def test_selectors_of_one_request_share_the_requirement_limit() -> None:
    budget = Budget()
    parse_label_selector("a=b," * 199 + "a=b", budget)
    with pytest.raises(StatusError, match="too many requirements"):
        parse_field_selector("a=b," * 99 + "a=b", budget)


def test_label_selector_field_of_object_is_limited_in_size() -> None:
    exists = {"key": "a", "operator": "Exists"}
    (complaint,) = validate_label_selector({"matchExpressions": [exists] * 251}, "spec.selector")
    assert str(complaint) == "spec.selector.matchExpressions: Too many: 251: must have at most 250 items"
    (complaint,) = validate_label_selector({"matchLabels": {f"a{n}": "" for n in range(251)}}, "spec.selector")
    assert complaint.path == "spec.selector.matchLabels"
    values = {"key": "a", "operator": "In", "values": ["b"] * 5001}
    (complaint,) = validate_label_selector({"matchExpressions": [values]}, "spec.selector")
    assert "must have at most 5000 items" in str(complaint)
