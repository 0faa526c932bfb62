from __future__ import annotations

import pytest

from tests.faults.deaths.victims import (
    FALSE,
    MANAGER,
    QUORUM_LOST,
    TRUE,
    UNKNOWN,
    Host,
    Seen,
    Verdict,
    Victim,
    all_victims,
    complaints,
    few_victims,
    number_of_victims,
    unsaid,
    verdict,
)

FIRST, SECOND, THIRD = (Host(name, True, name == "first", ("agent", "nano")) for name in ("first", "second", "third"))
ONE, TWO = (Host(name, False, False, ("agent",)) for name in ("one", "two"))
HOSTS = [FIRST, SECOND, THIRD, ONE, TWO]


def test_victims_are_every_program_every_host_and_every_pair() -> None:
    found = all_victims(HOSTS)
    assert len(set(found)) == len(found) == 1 + (3 * 2 + 2) + 5 + 10
    assert number_of_victims([FIRST, ONE], 3, 2) == len(found)
    assert {str(one) for one in found} >= {MANAGER, "nano on third", "two", "second and two"}


def test_few_victims_include_program_worker_and_server_for_every_seed() -> None:
    shares = [few_victims([FIRST, ONE], seed) for seed in range(4)]
    assert {(str(worker), str(server)) for _, worker, server in shares} == {("one", "first")}
    assert {str(program) for program, _, _ in shares} == {MANAGER, "agent on first", "nano on first", "agent on one"}


@pytest.mark.parametrize(
    ("victim", "expected"),
    [
        (Victim((SECOND,), "nano"), Verdict(frozenset({TRUE}), heals=True)),
        (Victim((), MANAGER), Verdict(frozenset({TRUE}), heals=True)),
        (Victim((TWO,)), Verdict(frozenset({FALSE}), named=("two",))),
        (Victim((ONE, TWO)), Verdict(frozenset({FALSE}), named=("one", "two"))),
        (Victim((SECOND,)), Verdict(frozenset({FALSE}), named=("second",))),
        (Victim((SECOND, ONE)), Verdict(frozenset({FALSE}), named=("second", "one"))),
        (Victim((FIRST,)), Verdict(frozenset({FALSE, UNKNOWN}), named=("first",))),
        (Victim((FIRST, ONE)), Verdict(frozenset({FALSE, UNKNOWN}), named=("first",))),
        (Victim((SECOND, THIRD)), Verdict(frozenset({FALSE}), QUORUM_LOST, ("second", "third"))),
        (Victim((FIRST, SECOND)), Verdict(frozenset({FALSE}), QUORUM_LOST, ("first", "second"))),
    ],
)
def test_verdict_depends_on_surviving_hosts(victim: Victim, expected: Verdict) -> None:
    assert verdict(victim, HOSTS) == expected


def test_verdict_on_the_only_server_is_unknown() -> None:
    assert verdict(Victim((FIRST,)), [FIRST, ONE]) == Verdict(frozenset({UNKNOWN}), named=("first",))


def test_complaints_name_wrong_and_disagreeing_kinds() -> None:
    lost = verdict(Victim((SECOND, THIRD)), HOSTS)
    seen = {
        "declared": Seen(TRUE, "Ready", "", 0.0),
        "control plane": Seen(FALSE, "NodesNotReady", "second", 0.0),
        "management": Seen(FALSE, QUORUM_LOST, "second, third", 0.0),
    }
    first, second, third = complaints(lost, seen)
    assert first.startswith("declared is True")
    assert second == "control plane has the reason NodesNotReady, not QuorumLost"
    assert third.startswith("they disagree")
    assert list(complaints(lost, {"management": seen["management"]})) == []


def test_why_check_requires_dead_hosts_and_no_self_healing_promise() -> None:
    lost, nodes = verdict(Victim((SECOND, THIRD)), HOSTS), {"second": "node-2", "third": "node-3"}
    assert list(unsaid(lost, nodes, "start node-2 and third again")) == []
    assert list(unsaid(lost, nodes, "second: it goes on by itself")) == [
        "third is not named",
        "a lost quorum does not come back by itself",
    ]
