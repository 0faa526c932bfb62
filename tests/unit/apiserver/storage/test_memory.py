"""Tables, history and older states, each against a model that keeps everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.storage.history import History
from remuda.apiserver.storage.memory import Memory
from remuda.apiserver.storage.tables import ObjectTable
from remuda.apiserver.storage.types import UNKNOWN, Compacted, Revision, StoreEntry, StoreEvent

NAMESPACES = ["", "a", "a-b", "b"]
NAMES = ["x", "x-1", "x.1", "y"]
keys = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(NAMES))
afters = st.none() | keys


def entry(key: tuple[str, str], revision: int = 1, table: str = "t", size: int = 1) -> StoreEntry:
    return StoreEntry(table, *key, Revision(revision), b"v" * size)


def upstream_order(key: tuple[str, str]) -> str:
    return f"{key[0]}/{key[1]}"


def expected(state: dict[tuple[str, str], StoreEntry], namespace: str, after: Any, limit: int) -> list[StoreEntry]:
    found = [
        state[key]
        for key in sorted(state, key=upstream_order)
        if (not namespace or key[0] == namespace) and (after is None or upstream_order(key) > upstream_order(after))
    ]
    return found[:limit] if limit else found


@given(st.lists(st.tuples(st.booleans(), keys)), st.sampled_from(NAMESPACES), afters, st.integers(0, 5))
def test_table_scan_order_matches_upstream_keys(
    steps: list[tuple[bool, tuple[str, str]]], namespace: str, after: tuple[str, str] | None, limit: int
) -> None:
    table, model = ObjectTable(), dict[tuple[str, str], StoreEntry]()
    for revision, (put, key) in enumerate(steps):
        if put:
            model[key] = entry(key, revision)
            table.set(model[key])
        else:
            model.pop(key, None)
            table.remove(*key)
    assert table.scan(namespace, after, limit) == expected(model, namespace, after, limit)
    assert list(table.walk(namespace, after)) == expected(model, namespace, after, 0)
    assert table.count == len(model)
    assert all(table.get(*key) is model.get(key) for key in ((ns, n) for ns in NAMESPACES for n in NAMES))


@given(st.lists(keys, unique=True))
def test_bulk_loaded_table_equals_incrementally_built_table(loaded: list[tuple[str, str]]) -> None:
    grown, filled = ObjectTable(), ObjectTable()
    entries = [entry(key) for key in loaded]
    for each in entries:
        grown.set(each)
        filled.fill(each)
    filled.sort()
    assert filled.scan("", None, 0) == grown.scan("", None, 0)
    assert filled.count == grown.count


class Model:
    """Memory beside every state it ever had."""

    def __init__(self, history: History) -> None:
        self.memory = Memory({}, history, Revision(0))
        self.states: list[dict[tuple[str, str], StoreEntry]] = [{}]

    def change(self, key: tuple[str, str], delete: bool) -> None:
        state = dict(self.states[-1])
        before = state.get(key)
        if delete and before is None:
            return
        new = entry(key, len(self.states))
        kind = "DELETED" if delete else "MODIFIED" if before else "ADDED"
        if delete:
            del state[key]
        else:
            state[key] = new
        self.states.append(state)
        self.memory.apply([StoreEvent(kind, new, before)])  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(keys, st.booleans()), max_size=40),
    st.integers(1, 40),
    st.sampled_from(NAMESPACES),
    afters,
    st.integers(0, 5),
)
def test_past_revision_scan_matches_history_or_is_compacted(
    steps: list[tuple[tuple[str, str], bool]], kept: int, namespace: str, after: Any, limit: int
) -> None:
    model = Model(History(max_events=kept))
    for key, delete in steps:
        model.change(key, delete)
    memory = model.memory
    assert memory.history.floor == max(0, memory.revision - kept)
    for revision, state in enumerate(model.states):
        if revision < memory.history.floor:
            with pytest.raises(Compacted):
                memory.scan_at("t", namespace, after, limit, Revision(revision))
        else:
            found = memory.scan_at("t", namespace, after, limit, Revision(revision))
            assert found == expected(state, namespace, after, limit)


def test_unknown_previous_state_compacts_only_affected_scans() -> None:
    memory = Memory({}, History(), Revision(0))
    memory.apply(
        [StoreEvent("MODIFIED", entry(("a", "x"), 5), UNKNOWN), StoreEvent("ADDED", entry(("b", "x"), 6), None)]
    )
    with pytest.raises(Compacted):
        memory.scan_at("t", "", None, 0, Revision(4))
    with pytest.raises(Compacted):
        memory.scan_at("t", "a", None, 0, Revision(4))
    assert memory.scan_at("t", "b", None, 0, Revision(4)) == []
    assert memory.scan_at("other", "", None, 0, Revision(4)) == []
    assert [e.revision for e in memory.scan_at("t", "", None, 0, Revision(5))] == [5]


def revisions(events: Sequence[StoreEvent]) -> list[int]:
    return [event.revision for event in events]


def test_history_is_bounded_by_bytes_of_new_and_replaced_values() -> None:
    history = History(max_events=1000, max_bytes=100_000)
    big = entry(("a", "x"), 1, size=40_000)
    history.append(StoreEvent("ADDED", big, None))
    for revision in range(2, 10):
        history.append(StoreEvent("MODIFIED", entry(("a", "x"), revision, size=1), big))  # each holds on to the big one
    assert len(history) == 2
    assert history.bytes <= 100_000
    assert history.floor == 7


def test_history_keeps_the_newest_event_however_large() -> None:
    history = History(max_events=10, max_bytes=10)
    for revision in (1, 2):
        history.append(StoreEvent("ADDED", entry(("a", f"n{revision}"), revision, size=1000), None))
    assert len(history) == 1
    assert revisions(history.select("t", "", Revision(1))) == [2]


def test_wire_encodings_are_kept_for_the_newest_events_only() -> None:
    history = History()
    events = [StoreEvent("ADDED", entry(("a", f"n{i}"), i), None) for i in range(1, 1001)]
    for event in events:
        event.lines["json"] = b"line"
        history.append(event)
    assert events[-1].lines
    assert events[-200].lines
    assert not any(event.lines for event in events[:700])
