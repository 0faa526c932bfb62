"""The judge of the fault campaigns, judged: it accepts a right history and names each kind of wrong one."""

from __future__ import annotations

import pytest

from tests.faults.storage.checker import (
    Acknowledged,
    Attempted,
    Bookmark,
    Change,
    Checker,
    Failed,
    Held,
    Record,
    Relisted,
    Seen,
    Started,
    WatcherLog,
    Watching,
)

A, B = ("machines", "ns", "a"), ("machines", "ns", "b")
ADD_A = Change(1, "ADDED", A, "x1")
CHANGE_A = Change(2, "MODIFIED", A, "x2")
ADD_B = Change(3, "ADDED", B, "x3")
DELETE_A = Change(4, "DELETED", A, "x4")


def judge(*records: Record) -> list[str]:
    checker = Checker({"w": WatcherLog("machines", "")})
    for record in records:
        checker.take(record)
    return checker.finish()


def written(*changes: Change) -> list[Record]:
    return [record for change in changes for record in (Attempted(change), Acknowledged(change))]


def test_checker_accepts_correct_history() -> None:
    assert not judge(
        Started(0, []),
        Watching("w", 0),
        *written(ADD_A, CHANGE_A),
        Seen("w", [ADD_A, CHANGE_A]),
        Attempted(ADD_B),  # reaches the disk, but nobody is told
        Attempted(Change(4, "ADDED", ("machines", "ns", "lost"), "y")),
        Started(3, [Held(2, A, "x2"), Held(3, B, "x3")]),
        Watching("w", 2),
        *written(DELETE_A),  # 4 was never seen by anyone: it may be given again
        Seen("w", [ADD_B, DELETE_A]),
        Bookmark("w", 4),
        Started(4, [Held(3, B, "x3")]),
        Relisted("w", 4, [Held(3, B, "x3")]),
    )


def test_checker_accepts_failed_write_on_disk_only_without_later_writes() -> None:
    failed: list[Record] = [Attempted(ADD_A), Attempted(CHANGE_A, alone=False), Failed(ADD_A), Failed(CHANGE_A)]
    assert not judge(*failed, Started(0, []))
    assert not judge(*failed, Started(1, [Held(1, A, "x1")]))
    assert not judge(*failed, Started(2, [Held(2, A, "x2")]))
    assert not judge(*failed, *written(ADD_B), Started(3, [Held(3, B, "x3")]))
    assert judge(*failed, *written(ADD_B), Started(3, [Held(2, A, "x2"), Held(3, B, "x3")]))
    assert judge(*failed, Seen("w", [ADD_A]))
    again: list[Record] = [Attempted(ADD_B), Failed(ADD_B)]  # a later failure of its own
    assert not judge(*failed, *again, Started(3, [Held(3, B, "x3")]))
    assert judge(*failed, *again, Started(3, [Held(2, A, "x2"), Held(3, B, "x3")]))


def test_checker_treats_concurrent_write_as_independent_of_failed_write() -> None:
    records: list[Record] = [Attempted(ADD_A), Attempted(ADD_B), Failed(ADD_A), Acknowledged(ADD_B)]
    assert not judge(*records, Started(3, [Held(3, B, "x3")]))
    assert judge(*records, Started(3, [Held(1, A, "x1"), Held(3, B, "x3")]))


WRONG: dict[str, tuple[str, list[Record]]] = {
    "a lost write": ("lacks", [*written(ADD_A, ADD_B._replace(revision=2)), Started(2, [Held(1, A, "x1")])]),
    "a lost newest write": ("was known to clients", [*written(ADD_A), Started(0, [])]),
    "a lost delete": ("should not be there", [*written(ADD_A, DELETE_A), Started(4, [Held(1, A, "x1")])]),
    "an event without a durable write": ("was known", [Attempted(ADD_A), Seen("w", [ADD_A]), Started(0, [])]),
    "half a batch": ("lacks", [Attempted(ADD_A), Attempted(ADD_B), Started(3, [Held(3, B, "x3")])]),
    "a revision given twice": ("given again", [*written(ADD_A), Attempted(Change(1, "ADDED", B, "z"))]),
    "a revision with two meanings": ("stands for", [*written(ADD_A), Seen("w", [ADD_A._replace(token="z")])]),
    "an invention": ("never written", [Seen("w", [ADD_A])]),
    "an answer taken back": ("then failed", [*written(ADD_A), Failed(ADD_A)]),
    "a gap": ("missed [2]", [*written(ADD_A, CHANGE_A, ADD_B), Seen("w", [ADD_A]), Seen("w", [ADD_B])]),
    "a bookmark too far": ("missed [2]", [*written(ADD_A, CHANGE_A), Seen("w", [ADD_A]), Bookmark("w", 2)]),
    "a bookmark going back": ("got bookmark", [*written(ADD_A), Seen("w", [ADD_A]), Bookmark("w", 0)]),
    "a duplicate": ("1 again", [*written(ADD_A), Seen("w", [ADD_A]), Seen("w", [ADD_A])]),
    "a reorder": ("1 out of order", [*written(ADD_A, CHANGE_A), Seen("w", [CHANGE_A, ADD_A])]),
    "a stranger": ("stranger", [*written(c := Change(1, "ADDED", ("leases", "", "l"), "t")), Seen("w", [c])]),
    "a wrong list": ("lacks", [*written(ADD_A), Relisted("w", 1, [])]),
    "a jump on resume": ("resumed at 2", [*written(ADD_A, CHANGE_A), Seen("w", [ADD_A]), Watching("w", 2)]),
}


@pytest.mark.parametrize("case", WRONG)
def test_checker_reports_incorrect_history(case: str) -> None:
    says, records = WRONG[case]
    problems = judge(*records)
    assert any(says in problem for problem in problems), problems
