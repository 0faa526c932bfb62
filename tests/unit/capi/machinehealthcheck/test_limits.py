from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi.machinehealthcheck.status import Limit, limit
from remuda.capi.types.machinehealthcheck import RemediationTrigger


def at_most(amount: int | str) -> RemediationTrigger:
    return RemediationTrigger(unhealthy_less_than_or_equal_to=amount)


def in_range(text: str) -> RemediationTrigger:
    return RemediationTrigger(unhealthy_in_range=text)


def test_remediation_without_limit_is_always_allowed() -> None:
    assert limit(RemediationTrigger(), 3, 3) == Limit(True, 0, "")
    assert limit(RemediationTrigger(), 3, 1) == Limit(True, 2, "")
    assert limit(RemediationTrigger(), 0, 0) == Limit(True, 0, "")


@pytest.mark.parametrize(
    ("amount", "expected", "not_healthy", "allowed", "remaining"),
    [
        (2, 5, 2, True, 0),
        (2, 5, 1, True, 1),
        (2, 5, 3, False, 0),
        (0, 5, 0, True, 0),
        (0, 5, 1, False, 0),
        ("40%", 5, 2, True, 0),
        ("40%", 5, 3, False, 0),
        ("40%", 4, 1, True, 0),
        ("40%", 4, 2, False, 0),
        ("40%", 2, 1, False, 0),
        ("100%", 3, 3, True, 0),
    ],
)
def test_unhealthy_limit_accepts_number_or_percentage_rounded_down(
    amount: int | str, expected: int, not_healthy: int, allowed: bool, remaining: int
) -> None:
    found = limit(at_most(amount), expected, not_healthy)
    assert (found.allowed, found.remaining) == (allowed, remaining)


@pytest.mark.parametrize(
    ("not_healthy", "allowed", "remaining"), [(0, False, 0), (2, False, 0), (3, True, 2), (5, True, 0), (6, False, 0)]
)
def test_unhealthy_range_is_checked_at_both_ends(not_healthy: int, allowed: bool, remaining: int) -> None:
    found = limit(in_range("[3-5]"), 10, not_healthy)
    assert (found.allowed, found.remaining) == (allowed, remaining)


def test_unhealthy_range_overrides_unhealthy_limit() -> None:
    both = RemediationTrigger(unhealthy_less_than_or_equal_to=9, unhealthy_in_range="[1-2]")
    assert not limit(both, 10, 5).allowed


def test_limit_explanation_names_unhealthy_and_allowed_counts() -> None:
    texts = [limit(trigger, 5, 3).explanation for trigger in (at_most("40%"), at_most(1), in_range("[0-2]"))]
    assert texts == [
        "3 of 5 Machines are not healthy; remediation requires at most 2 (40%)",
        "3 of 5 Machines are not healthy; remediation requires at most 1",
        "3 of 5 Machines are not healthy; remediation requires between 0 and 2",
    ]
    assert limit(at_most(0), 5, 1).explanation.startswith("1 of 5 Machines is not healthy")


@pytest.mark.parametrize(
    "trigger", [at_most("many"), at_most("4"), at_most("%"), in_range("3-5"), in_range("[5-3]"), in_range("[3-5] ")]
)
def test_invalid_remediation_trigger_raises_value_error(trigger: RemediationTrigger) -> None:
    with pytest.raises(ValueError, match="'"):
        limit(trigger, 5, 1)


@given(st.integers(0, 200), st.integers(0, 100), st.integers(0, 100))
def test_each_unhealthy_machine_reduces_remaining_remediations(expected: int, percent: int, before: int) -> None:
    trigger = at_most(f"{percent}%")
    now, then = limit(trigger, expected, before), limit(trigger, expected, before + 1)
    assert now.allowed == (before * 100 <= expected * percent)
    assert then.allowed == (now.allowed and now.remaining > 0)
    assert then.remaining == max(now.remaining - 1, 0)
