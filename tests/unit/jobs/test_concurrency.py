"""ConcurrencyLimit: so many at a time, and nobody waits behind a crowd of another namespace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remuda.jobs.children import ConcurrencyLimit
from remuda.kube.objects import Key


def turns(most: int) -> tuple[ConcurrencyLimit, list[Key]]:
    woken: list[Key] = []
    return ConcurrencyLimit(most, woken.append), woken


def test_concurrency_limit_caps_granted_slots() -> None:
    some, _ = turns(2)
    assert [some.ask(Key("a", str(number))) for number in range(3)] == [True, True, False]
    assert (some.taken, some.waiting) == (2, 1)


def test_repeated_slot_request_is_idempotent() -> None:
    some, woken = turns(1)
    first, second = Key("a", "1"), Key("a", "2")
    assert some.ask(first)
    assert some.ask(first)
    assert not some.ask(second)
    assert not some.ask(second)
    some.give_back(first)
    assert woken == [second]
    assert some.ask(second)


def test_released_slot_alternates_between_namespaces() -> None:
    some, woken = turns(1)
    some.ask(Key("crowd", "0"))
    for number in range(1, 6):
        some.ask(Key("crowd", str(number)))
    some.ask(Key("lonely", "1"))
    some.give_back(Key("crowd", "0"))
    some.give_back(woken[-1])
    assert Key("lonely", "1") in woken[:2]


def test_abandoned_queue_position_is_skipped() -> None:
    some, woken = turns(1)
    some.ask(Key("a", "1"))
    some.ask(Key("a", "2"))
    some.ask(Key("a", "3"))
    some.give_back(Key("a", "2"))
    some.give_back(Key("a", "1"))
    assert woken == [Key("a", "3")]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.integers(0, 5))), st.integers(1, 4))
def test_concurrency_limit_holds_and_loses_no_slot(acts: list[tuple[bool, str, int]], most: int) -> None:
    some, _ = turns(most)
    asked: set[Key] = set()
    for asks, namespace, number in acts:
        key = Key(namespace, str(number))
        if asks:
            some.ask(key)
            asked.add(key)
        else:
            some.give_back(key)
            asked.discard(key)
        assert some.taken == min(most, len(asked))
        assert some.taken + some.waiting == len(asked)
