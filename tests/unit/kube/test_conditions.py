"""Conditions in raw statuses: times that stay, an order that stays, and what a status change moves."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.conditions import condition, find, is_false, is_true, put
from remuda.kube.objects import Condition

EARLY = "2026-01-01T00:00:00Z"
LATE = "2026-01-02T00:00:00Z"

TYPES = ("Available", "Ready", "Deleting", "Paused", "Alpha", "Beta", "example.com/Gate")
conditions = st.builds(
    Condition,
    type=st.sampled_from(TYPES),
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=st.sampled_from(["One", "Two"]),
    message=st.text(max_size=5),
)


def test_new_condition_has_every_required_key() -> None:
    status: dict[str, Any] = {}
    put(status, [condition("Ready", True, "Ready")], generation=3, now=EARLY)
    assert status == {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Ready",
                "message": "",
                "lastTransitionTime": EARLY,
                "observedGeneration": 3,
            }
        ]
    }


def test_transition_time_is_kept_while_status_is_unchanged() -> None:
    status: dict[str, Any] = {}
    put(status, [condition("Ready", False, "One", "a")], generation=1, now=EARLY)
    put(status, [condition("Ready", False, "Two", "b")], generation=2, now=LATE)
    (found,) = status["conditions"]
    assert (found["reason"], found["message"], found["observedGeneration"]) == ("Two", "b", 2)
    assert found["lastTransitionTime"] == EARLY


@pytest.mark.parametrize("own_time", ["", "2025-12-31T00:00:00Z"])
def test_changed_status_uses_given_or_current_transition_time(own_time: str) -> None:
    status: dict[str, Any] = {}
    put(status, [condition("Ready", False, "One")], generation=1, now=EARLY)
    put(status, [Condition(type="Ready", status="True", last_transition_time=own_time)], generation=1, now=LATE)
    assert status["conditions"][0]["lastTransitionTime"] == (own_time or LATE)


def test_condition_without_given_time_uses_clock() -> None:
    status: dict[str, Any] = {}
    put(status, [condition("Ready", "Unknown", "One")], generation=0)
    (found,) = status["conditions"]
    assert found["lastTransitionTime"].endswith("Z")
    assert "observedGeneration" not in found


def test_conditions_are_sorted_with_available_and_ready_first() -> None:
    status: dict[str, Any] = {}
    put(status, [condition(type, True, "Is") for type in reversed(TYPES)], generation=1, now=EARLY)
    assert [one["type"] for one in status["conditions"]] == [
        "Available",
        "Ready",
        "Alpha",
        "Beta",
        "example.com/Gate",
        "Deleting",
        "Paused",
    ]


def test_foreign_conditions_are_kept_unchanged() -> None:
    other = {"type": "Gate", "status": "True", "lastTransitionTime": EARLY, "extra": 1}
    status: dict[str, Any] = {"conditions": [other], "phase": "Running"}
    put(status, [condition("Ready", True, "Ready")], generation=1, now=LATE)
    assert status["conditions"][1] == other
    assert status["phase"] == "Running"


def test_removing_last_condition_removes_the_list() -> None:
    status: dict[str, Any] = {}
    put(status, [condition("Ready", True, "Ready"), condition("Gone", True, "Gone")], generation=1, now=EARLY)
    put(status, [], generation=1, remove=["Gone", "NeverThere"])
    assert [one["type"] for one in status["conditions"]] == ["Ready"]
    put(status, [], generation=1, remove=["Ready"])
    assert status == {}


def test_overlong_condition_message_is_truncated() -> None:
    status: dict[str, Any] = {}
    put(status, [condition("Ready", True, "Ready", "x" * 40000)], generation=1, now=EARLY)
    message = status["conditions"][0]["message"]
    assert len(message) == 32768
    assert message.endswith("x...")


@given(st.lists(conditions), st.lists(conditions))
def test_putting_same_conditions_again_changes_nothing(first: list[Condition], second: list[Condition]) -> None:
    status: dict[str, Any] = {}
    put(status, first, generation=1, now=EARLY)
    put(status, second, generation=1, now=EARLY)
    before = copy.deepcopy(status)
    last_output = {one.type: one for one in second}.values()
    put(status, last_output, generation=1, now=LATE)
    assert status == before


@given(st.lists(conditions, unique_by=lambda one: one.type), st.randoms())
def test_stored_conditions_are_independent_of_write_order(some: list[Condition], random: Any) -> None:
    shuffled = random.sample(some, len(some))
    one: dict[str, Any] = {}
    other: dict[str, Any] = {}
    put(one, some, generation=1, now=EARLY)
    put(other, shuffled, generation=1, now=EARLY)
    assert one == other


def test_conditions_are_found_by_type_and_status() -> None:
    some = [condition("Ready", True, "Ready"), condition("Gate", False, "No"), condition("Later", "Unknown", "Maybe")]
    assert find(some, "Gate") is some[1]
    assert find(some, "Missing") is None
    assert [is_true(some, type) for type in ("Ready", "Gate", "Later", "Missing")] == [True, False, False, False]
    assert [is_false(some, type) for type in ("Ready", "Gate", "Later", "Missing")] == [False, True, False, False]
