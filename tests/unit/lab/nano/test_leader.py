"""The leader by itself: who is alive, who votes, and when nothing is written."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from remuda.lab.nano import leader as leader_module
from remuda.lab.nano import membership_client
from remuda.lab.nano.layout import NanoLayout
from remuda.lab.nano.leader import Leader, MemberRemoved
from remuda.lab.nano.members import MemberList
from remuda.lab.nano.membership_client import Heartbeat, Intervals


def report(name: str, *, member: bool = True, api: bool = True) -> Heartbeat:
    return Heartbeat(node=name, address=f"10.0.0.{ord(name)}", port=6443, member=f"{name}-1" if member else "", api=api)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(Leader, "_now", lambda self: clock.now)
    return clock


def leader(tmp_path: Path) -> Leader:
    own = report("a")
    members = MemberList(leader="a-1", members=(own.as_member(),))
    return Leader(NanoLayout(tmp_path), members, own, Intervals(1.0, 5.0))


def join(seats: Leader, clock: Clock, name: str) -> None:
    seats.join(report(name).as_member())
    seats.hear(report(name))
    seats.look_after_learners()
    clock.now += leader_module.CATCH_UP_SECONDS
    seats.hear(report(name))
    seats.look_after_learners()


async def test_members_count_towards_quorum_while_reporting(tmp_path: Path, clock: Clock) -> None:
    seats = leader(tmp_path)
    for name in ("b", "c"):
        join(seats, clock, name)
    assert seats.refusing() == ""
    assert [one.learner for one in seats.members.members] == [False] * 3
    clock.now += 5.5
    assert seats.refusing() == "etcdserver: no leader"
    assert not seats.standing().leader
    seats.hear(report("b"))
    assert seats.refusing() == ""
    assert seats.standing().alive == ("a-1", "b-1")


async def test_member_list_is_persisted_and_restarted_leader_waits_for_quorum(tmp_path: Path, clock: Clock) -> None:
    seats = leader(tmp_path)
    join(seats, clock, "b")
    kept = membership_client.load(tmp_path / "server/db/cluster.json")
    assert kept == seats.members
    again = Leader(NanoLayout(tmp_path), kept, report("a"), Intervals(1.0, 5.0))
    assert again.refusing() == "etcdserver: no leader"
    again.hear(report("b"))
    assert again.refusing() == ""


async def test_report_of_removed_member_raises_removed(tmp_path: Path, clock: Clock) -> None:
    seats = leader(tmp_path)
    join(seats, clock, "b")
    seats.remove("b-1")
    with pytest.raises(MemberRemoved):
        seats.hear(report("b"))
    assert seats.standing().apiservers == ("https://10.0.0.97:6443",)


async def test_non_member_server_is_listed_only_as_apiserver(tmp_path: Path, clock: Clock) -> None:
    seats = leader(tmp_path)
    seats.hear(report("p", member=False))
    standing = seats.standing()
    assert standing.alive == ("a-1",)
    assert len(standing.apiservers) == 2
    clock.now += 6
    assert len(seats.standing().apiservers) == 1


async def test_learner_that_never_reports_is_removed(tmp_path: Path, clock: Clock) -> None:
    seats = leader(tmp_path)
    seats.join(report("b").as_member())
    seats.look_after_learners()
    clock.now += leader_module.STALL_SECONDS - 1
    seats.look_after_learners()
    assert len(seats.members.members) == 2
    clock.now += 2
    seats.look_after_learners()
    assert [one.name for one in seats.members.members] == ["a-1"]


async def test_member_change_invokes_listener(tmp_path: Path, clock: Clock) -> None:
    seats = leader(tmp_path)
    changed = asyncio.Event()
    seats.on_change(changed.set)
    seats.join(report("b").as_member())
    assert changed.is_set()
