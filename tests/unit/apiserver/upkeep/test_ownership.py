"""The index names exactly those who have to be looked at, and holds nothing once nobody owns anybody."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.storage.types import Revision, StoreEntry
from remuda.apiserver.upkeep.ownership import Ownership


def entry(
    name: str, *owners: str, blocks: bool = False, finalizers: tuple[str, ...] = (), ending: bool = False
) -> StoreEntry:
    metadata: dict[str, object] = {"name": name, "uid": f"u-{name}"}
    if owners:
        metadata["ownerReferences"] = [{"uid": f"u-{owner}", "blockOwnerDeletion": blocks} for owner in owners]
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    if ending:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return StoreEntry("t", "ns", name, Revision(1), msgspec.json.encode({"metadata": metadata}))


def key(name: str) -> tuple[str, str, str]:
    return ("t", "ns", name)


def test_ownership_index_queues_object_only_for_new_owners() -> None:
    index = Ownership()
    assert index.see(entry("alone")) == []
    assert index.see(entry("child", "a")) == [key("child")]
    assert index.see(entry("child", "a")) == []
    assert index.see(entry("child", "a", "b")) == [key("child")]
    assert index.see(entry("child", "b")) == []
    assert index.dependents("u-a") == []
    assert index.dependents("u-b") == [key("child")]


def test_ownership_index_queues_dependents_of_deleted_owner() -> None:
    index = Ownership()
    index.see(entry("child", "a"))
    assert index.forget(entry("a")) == [key("child")]
    assert index.is_gone("u-a")
    assert index.forget(entry("child", "a")) == []
    assert not index.is_gone("u-a")


def test_ownership_index_queues_foreground_owner_on_dependent_changes() -> None:
    index = Ownership()
    index.see(entry("child", "a", blocks=True))
    waiting = entry("a", ending=True, finalizers=("foregroundDeletion",))
    assert index.see(waiting) == [key("a"), key("child")]
    assert index.blockers("u-a", key("a"))
    assert index.see(entry("child", "a")) == [key("a")]
    assert not index.blockers("u-a", key("a"))
    assert index.forget(entry("child", "a")) == [key("a")]


def test_ownership_index_ignores_null_fields() -> None:
    index = Ownership()
    value = b'{"metadata":{"uid":"u","ownerReferences":null,"finalizers":null,"deletionTimestamp":null}}'
    assert index.see(StoreEntry("t", "ns", "n", Revision(1), value)) == []


_NAMES = st.sampled_from("abcd")
_STEPS = st.lists(
    st.tuples(_NAMES, st.sets(_NAMES, max_size=3), st.booleans(), st.sampled_from(["see", "end", "forget"]))
)


@settings(max_examples=200, deadline=None)
@given(_STEPS)
def test_ownership_index_matches_existing_objects(steps: list[tuple[str, set[str], bool, str]]) -> None:
    index, there = Ownership(), dict[str, tuple[set[str], bool]]()
    for name, owners, blocks, step in steps:
        ending = step == "end"
        finalizers = ("foregroundDeletion",) if ending else ()
        now = entry(name, *sorted(owners), blocks=blocks, ending=ending, finalizers=finalizers)
        if step == "forget":
            index.forget(now)
            there.pop(name, None)
        else:
            index.see(now)
            there[name] = (owners, blocks)
    for owner in "abcd":
        expected = {key(name) for name, (owners, _) in there.items() if owner in owners}
        assert set(index.dependents(f"u-{owner}")) == expected
        blockers = any(owner in owners and blocks and name != owner for name, (owners, blocks) in there.items())
        assert index.blockers(f"u-{owner}", key(owner)) == blockers
    for name in list(there):
        index.forget(entry(name))
    assert not index._dependents
    assert not index._links
    assert not index._waiting
    assert not index._waiting_keys
    assert not index._gone
