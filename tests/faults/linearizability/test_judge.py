"""The judge of histories can tell right from wrong."""

from __future__ import annotations

import pytest

from tests.faults.linearizability.history import Answer, Operation, Shown, Verb, judge

A = "a"


def did(
    verb: Verb,
    call: int,
    returned: int,
    answer: Answer = "ok",
    *,
    key: str = A,
    token: str = "",
    expected: int = 0,
    shows: Shown | None = None,
) -> Operation:
    return Operation(0, verb, call, returned, answer, key=key, token=token, expected=expected, object=shows)


def listed(call: int, returned: int, revision: int, **items: Shown) -> Operation:
    return Operation(0, "list", call, returned, "ok", items=items, revision=revision)


CREATED = did("create", 1, 2, token="x", shows=Shown(5, "x"))
UPDATED = did("update", 3, 4, token="y", expected=5, shows=Shown(6, "y"))
STATUS = did("status", 5, 6, token="s", shows=Shown(7, "y", "s"))
LOST = did("update", 3, 0, "unknown", token="y", expected=5)

RIGHT = {
    "nothing": [],
    "one after the other": [
        CREATED,
        UPDATED,
        STATUS,
        did("get", 7, 8, shows=Shown(7, "y", "s")),
        did("delete", 9, 10),
        did("get", 11, 12, "absent"),
        did("create", 13, 14, token="z", shows=Shown(9, "z")),
    ],
    "a read beside a write may show either": [
        CREATED,
        did("update", 3, 9, token="y", expected=5, shows=Shown(6, "y")),
        did("get", 4, 5, shows=Shown(5, "x")),
        did("get", 6, 7, shows=Shown(6, "y")),
    ],
    "a lost write may have been done": [CREATED, LOST, did("get", 5, 6, shows=Shown(6, "y"))],
    "or not": [CREATED, LOST, did("get", 5, 6, shows=Shown(5, "x"))],
    "or late": [CREATED, LOST, did("get", 5, 6, shows=Shown(5, "x")), did("get", 7, 8, shows=Shown(6, "y"))],
    "a lost create": [did("create", 1, 0, "unknown", token="x"), did("create", 2, 3, "exists", token="y")],
    "a lost delete": [CREATED, did("delete", 3, 0, "unknown"), did("get", 5, 6, "absent")],
    "two objects": [CREATED, did("create", 3, 4, key="b", token="x", shows=Shown(6, "x"))],
    "refusals": [
        did("update", 0, 1, "absent", expected=3),
        CREATED,
        did("create", 3, 4, "exists", token="y"),
        did("update", 5, 6, "conflict", token="y", expected=4),
    ],
    "a list": [CREATED, listed(3, 4, 5, a=Shown(5, "x")), did("delete", 5, 6), listed(7, 8, 6)],
}

WRONG = {
    "a lost write": [CREATED, UPDATED, did("get", 5, 6, shows=Shown(5, "x"))],
    "a lost create": [CREATED, did("get", 3, 4, "absent")],
    "a lost status": [CREATED, UPDATED, STATUS, did("get", 7, 8, shows=Shown(6, "y"))],
    "a lost delete": [CREATED, did("delete", 3, 4), did("get", 5, 6, shows=Shown(5, "x"))],
    "a stale read": [
        CREATED,
        did("update", 3, 9, token="y", expected=5, shows=Shown(6, "y")),
        did("get", 4, 5, shows=Shown(6, "y")),
        did("get", 6, 7, shows=Shown(5, "x")),
    ],
    "a stale list": [CREATED, UPDATED, listed(5, 6, 6, a=Shown(5, "x"))],
    "a list that leaves one out": [CREATED, listed(3, 4, 5)],
    "a write that was undone": [
        CREATED,
        LOST,
        did("get", 5, 6, shows=Shown(6, "y")),
        did("get", 7, 8, shows=Shown(5, "x")),
    ],
    "two updates of one revision": [CREATED, UPDATED, did("update", 5, 6, token="z", expected=5, shows=Shown(7, "z"))],
    "a conflict without cause": [CREATED, did("update", 3, 4, "conflict", token="y", expected=5)],
    "two creates": [CREATED, did("create", 3, 4, token="y", shows=Shown(6, "y"))],
    "a value that nobody wrote": [CREATED, did("get", 3, 4, shows=Shown(5, "z"))],
    "a revision that goes back": [CREATED, did("delete", 3, 4), did("create", 5, 6, token="y", shows=Shown(5, "y"))],
    "a status that overwrites the object": [CREATED, UPDATED, did("status", 5, 6, token="s", shows=Shown(7, "x", "s"))],
}


@pytest.mark.parametrize("name", RIGHT)
def test_linearizable_history_has_no_problems(name: str) -> None:
    assert judge(RIGHT[name]) == ([], [])


@pytest.mark.parametrize("name", WRONG)
def test_non_linearizable_history_is_detected(name: str) -> None:
    verdict = judge(WRONG[name])
    assert verdict.keys == [A]
    assert "object a: its history is not linearizable" in verdict.problems


def test_revision_shared_by_two_objects_is_detected() -> None:
    (problem,) = judge([CREATED, did("create", 3, 4, key="b", token="x", shows=Shown(5, "x"))]).problems
    assert problem == "revision 5 was given to create of a and to create of b"


def test_list_mixing_two_revisions_is_detected() -> None:
    """Each object alone may be as it is shown; both together were never so."""
    history = [
        CREATED,
        did("create", 1, 2, key="b", token="x", shows=Shown(4, "x")),
        did("update", 3, 20, token="y", expected=5, shows=Shown(6, "y")),
        did("update", 3, 20, key="b", token="y", expected=4, shows=Shown(7, "y")),
        listed(4, 19, 7, a=Shown(5, "x"), b=Shown(7, "y")),
    ]
    verdict = judge(history)
    assert (verdict.keys, verdict.problems) == (
        [],
        ["list of revision 7 shows a of revision 5, which was written at 6"],
    )


def test_list_older_than_its_objects_is_detected() -> None:
    verdict = judge([CREATED, listed(3, 4, 4, a=Shown(5, "x"))])
    assert (verdict.keys, verdict.problems) == ([], ["list of revision 4 shows a of revision 5"])
