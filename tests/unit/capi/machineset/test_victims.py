from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import names
from remuda.capi.machineset import members
from remuda.capi.machineset.members import Rank
from remuda.capi.types import Machine
from tests.unit.capi.machineset.objects import good, machine

NOW = "2026-01-01T00:00:00Z"
RANKED = {
    Rank.DELETING: good("a", deleted=NOW),
    Rank.MARKED: good("b", annotations={names.DELETE_MACHINE: ""}),
    Rank.UPDATING: good("c", annotations={names.UPDATE_IN_PROGRESS: ""}),
    Rank.UNHEALTHY: machine("d", node=False),
    Rank.UNAVAILABLE: machine("e", conditions={"Available": False}),
    Rank.GOOD: good("f"),
}


@pytest.mark.parametrize("rank", Rank)
def test_machine_deletion_rank_follows_its_state(rank: Rank) -> None:
    assert members.rank(RANKED[rank]) == rank


def test_scale_down_deletes_highest_rank_first() -> None:
    chosen = members.choose_victims(list(reversed(RANKED.values())), 6, "Random")
    assert [members.rank(one) for one in chosen] == list(Rank)


@pytest.mark.parametrize(
    ("order", "expected"), [("Oldest", ["x", "y", "z"]), ("Newest", ["z", "y", "x"]), ("Random", ["x", "y", "z"])]
)
def test_deletion_order_decides_within_a_rank(order: str, expected: list[str]) -> None:
    machines = [good(name, created=f"2026-01-0{day}T00:00:00Z") for day, name in ((2, "y"), (3, "z"), (1, "x"))]
    assert [one.metadata.name for one in members.choose_victims(machines, 3, order)] == expected


def test_equally_ranked_machines_are_deleted_by_name() -> None:
    assert [m.metadata.name for m in members.choose_victims([good("b"), good("a")], 1, "Newest")] == ["a"]


@pytest.mark.parametrize("count", [0, -3])
def test_scale_down_by_zero_or_less_deletes_no_machine(count: int) -> None:
    assert members.choose_victims([good()], count, "Oldest") == []


@st.composite
def machine_lists(draw: st.DrawFn) -> list[Machine]:
    machine_names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8))
    return [
        machine(
            name,
            conditions={"Available": draw(st.booleans())},
            node=draw(st.booleans()),
            deleted=draw(st.sampled_from([None, NOW])),
            created=f"2026-01-0{draw(st.integers(1, 3))}T00:00:00Z",
        )
        for name in machine_names
    ]


@given(
    machines=machine_lists(),
    count=st.integers(0, 8),
    order=st.sampled_from(["Oldest", "Newest", "Random"]),
    data=st.data(),
)
def test_scale_down_choice_is_stable_when_repeated(
    machines: list[Machine], count: int, order: str, data: st.DataObject
) -> None:
    """Whatever of the first choice has been carried out, and in whatever order Machines are listed."""
    chosen = members.choose_victims(machines, count, order)
    carried_out = data.draw(st.sets(st.sampled_from(range(len(chosen))))) if chosen else set()
    doomed = {chosen[place].metadata.name for place in carried_out}
    later = [
        machine(one.metadata.name, deleted=NOW, created=one.metadata.creation_timestamp or "")
        if one.metadata.name in doomed
        else one
        for one in data.draw(st.permutations(machines))
    ]
    again = members.choose_victims(later, count, order)
    assert {one.metadata.name for one in again} == {one.metadata.name for one in chosen}


@given(machines=machine_lists(), count=st.integers(0, 8))
def test_available_machines_are_deleted_last(machines: list[Machine], count: int) -> None:
    chosen = members.choose_victims(machines, count, "Oldest")
    spared = [one for one in machines if one not in chosen]
    if any(members.is_available(one) and members.is_healthy(one) for one in chosen):
        assert all(members.is_available(one) for one in spared)
