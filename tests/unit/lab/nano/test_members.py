"""The member list, by random changes and deaths: there is always a majority to lose no more than one at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lab.nano.members import NO_LEADER, NOT_ENOUGH_STARTED, TOO_MANY_LEARNERS, Member, MemberList, MemberRefused


def member(name: str) -> Member:
    return Member(name=f"{name}-1", node=name, address=f"10.0.0.{ord(name[0])}")


def cluster(*names: str) -> MemberList:
    voters = tuple(member(name) for name in names)
    return MemberList(leader=voters[0].name, members=voters)


def alive(*names: str) -> set[str]:
    return {f"{name}-1" for name in names}


def test_new_member_starts_as_learner_and_only_one_learner_is_allowed() -> None:
    found = cluster("a").add(member("b"), alive("a"))
    assert [(one.node, one.learner) for one in found.members] == [("a", False), ("b", True)]
    assert found.add(member("b"), alive("a")) == found  # asked twice
    with pytest.raises(MemberRefused, match=TOO_MANY_LEARNERS):
        found.add(member("c"), alive("a", "b"))
    promoted = found.promote("b-1", alive("a", "b"))
    assert [one.learner for one in promoted.members] == [False, False]


def test_absent_learner_is_not_promoted() -> None:
    found = cluster("a").add(member("b"), alive("a"))
    with pytest.raises(MemberRefused, match=NOT_ENOUGH_STARTED):
        found.promote("b-1", alive("a"))


def test_second_member_of_the_same_node_is_refused() -> None:
    again = Member(name="b-2", node="b", address="10.0.0.9")
    with pytest.raises(MemberRefused, match="duplicate node name"):
        cluster("a", "b").add(again, alive("a", "b"))


def test_member_removal_requires_majority_before_and_after() -> None:
    assert {one.node for one in cluster("a", "b", "c").remove("c-1", alive("a", "b")).members} == {
        "a",
        "b",
    }  # a dead one
    with pytest.raises(MemberRefused, match=NOT_ENOUGH_STARTED):
        cluster("a", "b", "c").remove("a-1", alive("a", "b"))  # the dead one would be half of what is left
    with pytest.raises(MemberRefused, match=NO_LEADER):
        cluster("a", "b", "c").remove("b-1", alive("a"))
    with pytest.raises(MemberRefused, match=NOT_ENOUGH_STARTED):
        cluster("a").remove("a-1", alive("a"))
    with pytest.raises(MemberRefused, match="not found"):
        cluster("a").remove("z-1", alive("a"))


NAMES = "abcdefg"
changes = st.lists(
    st.tuples(st.sampled_from(["add", "promote", "remove"]), st.sampled_from(NAMES), st.sets(st.sampled_from(NAMES))),
    max_size=40,
)


@given(changes)
def test_member_changes_require_and_preserve_majority(steps: list[tuple[str, str, set[str]]]) -> None:
    found = cluster("a")
    for action, name, living in steps:
        here = alive(*living)
        try:
            if action == "add":
                changed = found.add(member(name), here)
            elif action == "promote":
                changed = found.promote(f"{name}-1", here)
            else:
                changed = found.remove(f"{name}-1", here)
        except MemberRefused:
            continue
        if changed != found:
            voting = [one.name for one in changed.members if not one.learner]
            assert 2 * sum(one in here for one in voting) > len(voting)
            before = [one.name for one in found.members if not one.learner]
            assert 2 * sum(one in here for one in before) > len(before)
            assert len(set(before) ^ set(voting)) <= 1
        assert sum(one.learner for one in changed.members) <= 1
        assert len({one.node for one in changed.members}) == len(changed.members)
        found = changed
