"""The model of etcd: what it refuses, and whom it blames."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lab.simulator import loop as virtual
from remuda.lab.simulator.etcd import Etcd, EtcdRefused


def grown(size: int) -> Etcd:
    etcd = Etcd(catch_up_seconds=0)
    etcd.bootstrap("m0")
    for number in range(1, size):
        etcd.join(f"m{number}")
        etcd.promote(f"m{number}")
    return etcd


def test_etcd_cluster_bootstraps_only_once() -> None:
    etcd = Etcd()
    etcd.bootstrap("m0")
    etcd.bootstrap("m0")
    assert etcd.has_quorum
    assert etcd.violations == []
    with pytest.raises(EtcdRefused):
        etcd.bootstrap("m1")
    assert etcd.violations == ["m1 began a new cluster although there is one"]


def test_existing_etcd_members_are_adopted_as_voters() -> None:
    etcd = Etcd()
    assert not etcd.born
    for name in ("m0", "m1", "m0"):
        etcd.adopt(name)
    assert etcd.born
    assert [member.name for member in etcd.voters] == ["m0", "m1"]


def test_join_before_bootstrap_is_rejected() -> None:
    with pytest.raises(EtcdRefused, match="no leader"):
        Etcd().join("m0")


def test_etcd_learner_does_not_count_towards_quorum() -> None:
    etcd = Etcd()
    etcd.bootstrap("m0")
    etcd.join("m1")
    assert etcd.quorum == 1
    etcd.fail("m1")
    assert etcd.has_quorum


def test_second_etcd_learner_is_rejected() -> None:
    etcd = Etcd()
    etcd.bootstrap("m0")
    etcd.join("m1")
    etcd.join("m1")
    with pytest.raises(EtcdRefused, match="too many learner"):
        etcd.join("m2")


def test_etcd_learner_is_promoted_only_after_catching_up() -> None:
    async def main() -> None:
        etcd = Etcd(catch_up_seconds=5)
        etcd.bootstrap("m0")
        etcd.join("m1")
        with pytest.raises(EtcdRefused, match="in sync"):
            etcd.promote("m1")
        await asyncio.sleep(5)
        etcd.promote("m1")
        etcd.promote("m1")
        assert etcd.quorum == 2

    virtual.run(main())


def test_dead_etcd_learner_is_not_promoted() -> None:
    etcd = Etcd(catch_up_seconds=0)
    etcd.bootstrap("m0")
    etcd.join("m1")
    etcd.fail("m1")
    with pytest.raises(EtcdRefused, match="in sync"):
        etcd.promote("m1")


@pytest.mark.parametrize(("size", "failures", "alive"), [(1, 1, False), (3, 1, True), (3, 2, False), (5, 2, True)])
def test_etcd_quorum_requires_majority_of_voters_alive(size: int, failures: int, alive: bool) -> None:
    etcd = grown(size)
    for number in range(failures):
        etcd.fail(f"m{number}")
    assert etcd.has_quorum is alive
    assert bool(etcd.refusal()) is not alive
    assert etcd.violations == []


def test_etcd_member_changes_are_rejected_without_quorum() -> None:
    etcd = grown(3)
    etcd.fail("m0")
    etcd.fail("m1")
    for act in (lambda: etcd.join("m3"), lambda: etcd.remove("m0"), lambda: etcd.promote("m1")):
        with pytest.raises(EtcdRefused, match="1 of 3"):
            act()
    etcd.recover("m0")
    etcd.remove("m1")
    assert [member.name for member in etcd.voters] == ["m0", "m2"]


def test_etcd_member_needed_for_quorum_is_not_removed() -> None:
    etcd = grown(3)
    etcd.fail("m0")
    with pytest.raises(EtcdRefused, match="not enough started members"):
        etcd.remove("m1")
    etcd.remove("m0")
    etcd.remove("m0")


def test_last_etcd_member_is_not_removed() -> None:
    with pytest.raises(EtcdRefused):
        grown(1).remove("m0")


def test_taking_hosts_after_member_removal_is_no_violation() -> None:
    etcd = grown(3)
    for name in ("m0", "m1"):
        etcd.remove(name)
        etcd.take_host(name)
    assert etcd.violations == []
    assert etcd.has_quorum


def test_taking_a_host_needed_for_quorum_is_one_violation() -> None:
    etcd = grown(3)
    etcd.take_host("m0")
    assert etcd.violations == []
    etcd.take_host("m1")
    assert len(etcd.violations) == 1
    assert "host of m1" in etcd.violations[0]
    etcd.take_host("m2")
    assert len(etcd.violations) == 1


def test_taking_hosts_after_cluster_end_is_no_violation() -> None:
    etcd = grown(3)
    etcd.end()
    for number in range(3):
        etcd.take_host(f"m{number}")
    etcd.adopt("m0")
    with pytest.raises(EtcdRefused):
        etcd.bootstrap("m0")
    assert not etcd.members
    assert etcd.violations == []


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_allowed_etcd_member_changes_always_keep_quorum(seed: int, steps: int) -> None:
    chance = random.Random(seed)
    etcd = grown(1)
    for number in range(steps):
        act = chance.choice(["join", "promote", "remove"])
        names = list(etcd.members)
        try:
            if act == "join" and len(names) < 7:
                etcd.join(f"n{number}")
            elif act == "promote":
                etcd.promote(chance.choice(names))
            elif act == "remove":
                name = chance.choice(names)
                etcd.remove(name)
                etcd.take_host(name)
        except EtcdRefused:
            continue
        assert etcd.has_quorum
        assert sum(member.learner for member in etcd.members.values()) <= 1
    assert etcd.violations == []
