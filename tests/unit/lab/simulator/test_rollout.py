"""What a control plane does next: walked at random to its end, and at no step is the quorum put at risk."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lab.simulator.etcd import Etcd
from remuda.lab.simulator.providers.rollout import (
    ControlPlaneMachine,
    CreateMachine,
    Decision,
    DeleteMachine,
    NoAction,
    WaitForMachine,
    decide,
)


def member(name: str, **more: object) -> ControlPlaneMachine:
    return ControlPlaneMachine(name=name, created=f"2026-01-01T00:00:{len(name):02d}Z")._replace(**more)  # type: ignore[arg-type]


A, B, C = member("a"), member("b"), member("c")


@pytest.mark.parametrize(
    ("members", "replicas", "expected"),
    [
        ([], 3, CreateMachine("", "0 of 3 Machines are there")),
        ([A], 1, NoAction()),
        ([A, B, C], 3, NoAction()),
        ([A._replace(settled=False)], 3, WaitForMachine("Machine a is not a member yet")),
        ([A, B._replace(deleting=True)], 3, WaitForMachine("Machine b is being deleted")),
        ([A, B], 1, DeleteMachine("a", "1 Machines are wanted")),
        ([A._replace(up_to_date=False)], 1, CreateMachine("", "outdated Machines are to be replaced")),
        ([A._replace(up_to_date=False), B], 1, DeleteMachine("a", "it is outdated and its replacement is there")),
        ([A, B._replace(unhealthy=True, settled=False), C], 3, DeleteMachine("b", "it is unhealthy")),
    ],
)
def test_control_plane_decision_makes_one_change_at_a_time(
    members: list[ControlPlaneMachine], replicas: int, expected: Decision
) -> None:
    assert decide(members, replicas) == expected


def test_only_unhealthy_member_is_not_deleted() -> None:
    assert isinstance(decide([A._replace(unhealthy=True)], 1), WaitForMachine)


def test_unhealthy_member_is_kept_while_another_member_joins() -> None:
    assert isinstance(decide([A, B._replace(unhealthy=True), C._replace(settled=False)], 3), WaitForMachine)


def test_oldest_outdated_member_is_deleted_first() -> None:
    old = [member(name, up_to_date=False, created=created) for name, created in (("x", "2"), ("y", "1"), ("z", "3"))]
    assert decide([*old, A], 3) == DeleteMachine("y", "it is outdated and its replacement is there")


def test_scaling_balances_failure_domains() -> None:
    here = [member("a", failure_domain="one"), member("b", failure_domain="two")]
    assert decide(here, 3, ["two", "three", "one"]) == CreateMachine("three", "2 of 3 Machines are there")
    crowded = [member("a", failure_domain="one"), *(member(n, failure_domain="two") for n in "bc")]
    assert decide(crowded, 2) == DeleteMachine("b", "2 Machines are wanted")


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 5))
def test_rollout_converges_without_quorum_loss(seed: int, first: int, then: int) -> None:
    chance = random.Random(seed)
    etcd = Etcd()
    etcd.bootstrap("m0")
    members = {"m0": member("m0")}
    names = (f"m{number}" for number in range(1, 1000))
    wanted = first
    for turn in range(300):
        if turn == 60:
            wanted = then
            members = {name: m._replace(up_to_date=chance.random() < 0.5) for name, m in members.items()}
        decision = decide(list(members.values()), wanted)
        if isinstance(decision, CreateMachine):
            name = next(names)
            members[name] = member(name, settled=False, created=f"{turn:04d}")
        elif isinstance(decision, DeleteMachine):
            members[decision.name] = members[decision.name]._replace(deleting=True)
        for name, m in list(members.items()):
            if m.deleting and chance.random() < 0.5:
                etcd.remove(name)
                etcd.take_host(name)
                del members[name]
            elif not m.settled and chance.random() < 0.5:
                etcd.join(name)
                etcd.promote(name)
                members[name] = m._replace(settled=True)
        assert sum(m.settled and not m.deleting for m in members.values()) >= min(wanted, len(members)) - 1
        assert len(members) <= max(first, then) + 1
        assert etcd.has_quorum
    assert decide(list(members.values()), wanted) == NoAction()
    assert len(members) == wanted
    assert all(m.up_to_date for m in members.values())
    assert etcd.violations == []
