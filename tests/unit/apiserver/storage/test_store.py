"""The store through its front: writes, reads, the overlay, listeners, failure, restart."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from remuda.apiserver.storage import disk as disk_module
from remuda.apiserver.storage.disk import Disk
from remuda.apiserver.storage.protocol import Store
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.types import (
    UNKNOWN,
    Compacted,
    Revision,
    StorageFailed,
    StoreEntry,
    StoreEvent,
    WriteConflict,
)
from tests.lab.limits import LIMIT_SECONDS

T = "machines.cluster.x-k8s.io"


def text(value: str) -> Callable[[Revision], bytes]:
    return lambda revision: f"{value}@{revision}".encode()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "data")
    yield opened
    await opened.close()


def names(entries: Sequence[StoreEntry]) -> list[str]:
    return [f"{e.namespace}/{e.name}" for e in entries]


class Breaking:
    """Makes commits fail while it is armed, after the statements of the batch have run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.armed = False
        self.released = threading.Event()  # no commit starts before
        self.released.set()
        original = Disk.commit

        def fail() -> bool:
            raise OSError("no space left on device")

        def commit(disk: Disk, events: Sequence[StoreEvent], floor: Revision) -> None:
            self.released.wait(LIMIT_SECONDS)
            disk._connection.set_commit_hook(fail if self.armed else None)
            original(disk, events, floor)

        monkeypatch.setattr(Disk, "commit", commit)


async def test_new_sqlite_store_starts_at_revision_zero(store: SqliteStore) -> None:
    described: Store = store  # mypy's question as much as ours
    assert described.revision == 0
    assert described.oldest == 0


async def test_write_is_visible_when_put_returns(store: SqliteStore) -> None:
    entry = await store.put(T, "ns", "a", text("one"), expect=None)
    assert (entry.revision, entry.value) == (1, b"one@1")
    assert store.get(T, "ns", "a") is entry
    assert store.revision == 1
    second = await store.put(T, "ns", "a", text("two"), expect=entry)
    assert store.get(T, "ns", "a") is second
    gone = await store.delete(T, "ns", "a", text("gone"), expect=second)
    assert (gone.revision, gone.value) == (3, b"gone@3")
    assert store.get(T, "ns", "a") is None
    assert list(store.tables()) == []


async def test_pending_write_is_visible_only_through_latest(store: SqliteStore) -> None:
    write = asyncio.ensure_future(store.put(T, "ns", "a", text("one"), expect=None))
    await asyncio.sleep(0)
    assert store.get(T, "ns", "a") is None
    assert store.scan(T) == []
    assert store.revision == 0
    pending = store.latest(T, "ns", "a")
    assert pending is not None
    assert pending.value == b"one@1"
    follow = asyncio.ensure_future(store.put(T, "ns", "a", text("two"), expect=pending))
    assert (await write) is pending
    second = await follow
    delete = asyncio.ensure_future(store.delete(T, "ns", "a", text("gone"), expect=second))
    await asyncio.sleep(0)
    assert store.latest(T, "ns", "a") is None
    await delete


async def test_stale_write_raises_conflict_without_writing(store: SqliteStore) -> None:
    first = await store.put(T, "ns", "a", text("one"), expect=None)
    with pytest.raises(WriteConflict):
        await store.put(T, "ns", "a", text("again"), expect=None)
    second = await store.put(T, "ns", "a", text("two"), expect=first)
    with pytest.raises(WriteConflict):
        await store.put(T, "ns", "a", text("late"), expect=first)
    with pytest.raises(WriteConflict):
        await store.delete(T, "ns", "a", text("late"), expect=first)
    with pytest.raises(WriteConflict):
        await store.put(T, "ns", "b", text("vanished"), expect=first)
    assert store.revision == second.revision == 2


async def test_concurrent_creates_of_same_key_succeed_once(store: SqliteStore) -> None:
    outcomes = await asyncio.gather(
        *(store.put(T, "ns", "a", text(str(i)), expect=None) for i in range(5)), return_exceptions=True
    )
    assert [type(o) for o in outcomes].count(WriteConflict) == 4
    assert isinstance(outcomes[0], StoreEntry)


async def test_failing_encoder_consumes_no_revision(store: SqliteStore) -> None:
    def refuse(revision: Revision) -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await store.put(T, "ns", "a", refuse, expect=None)
    assert store.latest(T, "ns", "a") is None
    assert (await store.put(T, "ns", "a", text("x"), expect=None)).revision == 1


async def test_cancelled_caller_does_not_cancel_the_write(store: SqliteStore) -> None:
    feed = store.watch(T, since=Revision(0))
    writes = [asyncio.ensure_future(store.put(T, "ns", f"n{i}", text("v"), expect=None)) for i in range(6)]
    await asyncio.sleep(0)
    for write in writes[::2]:
        write.cancel()
    await asyncio.gather(*writes, return_exceptions=True)
    last = await store.put(T, "ns", "last", text("v"), expect=None)
    assert names(store.scan(T)) == ["ns/last", *(f"ns/n{i}" for i in range(6))]
    seen: list[StoreEvent] = []
    while not seen or seen[-1].revision < last.revision:
        seen += await feed.next_batch()
    assert [e.revision for e in seen] == [1, 2, 3, 4, 5, 6, 7]


async def test_listeners_are_notified_before_put_returns(store: SqliteStore) -> None:
    known: set[str] = set()

    def listen(events: Sequence[StoreEvent]) -> None:
        assert store.revision == events[-1].revision
        known.update(e.entry.name for e in events)

    def broken(events: Sequence[StoreEvent]) -> None:
        raise RuntimeError("a listener's own trouble")

    store.subscribe(broken)
    stop = store.subscribe(listen)
    await store.put(T, "ns", "a", text("v"), expect=None)
    assert known == {"a"}
    stop()
    stop()
    await store.put(T, "ns", "b", text("v"), expect=None)
    assert known == {"a"}


async def test_failed_commit_fails_all_pending_writes(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = await store.put(T, "ns", "kept", text("v"), expect=None)
    feed = store.watch(T, since=store.revision)
    breaking = Breaking(monkeypatch)
    breaking.armed = True
    breaking.released.clear()
    first = asyncio.ensure_future(store.put(T, "ns", "kept", text("w"), expect=kept))
    other = asyncio.ensure_future(store.put(T, "ns", "other", text("w"), expect=None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # sent; what follows builds on it and is queued behind it
    behind = store.latest(T, "ns", "kept")
    follow = asyncio.ensure_future(store.put(T, "ns", "kept", text("x"), expect=behind))
    await asyncio.sleep(0)
    breaking.released.set()
    outcomes = await asyncio.gather(first, other, follow, return_exceptions=True)
    assert [type(o) for o in outcomes] == [StorageFailed] * 3
    assert "no space left" in str(outcomes[0])
    assert store.latest(T, "ns", "kept") is store.get(T, "ns", "kept") is kept
    assert store.revision == 1

    breaking.armed = False
    later = await store.put(T, "ns", "kept", text("y"), expect=kept)
    assert later.revision > 4 - 1  # the void ones are skipped, never given again
    assert [e.revision for e in await feed.next_batch()] == [later.revision]


async def test_failures_under_load_never_reuse_a_revision(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    breaking = Breaking(monkeypatch)
    given: list[int] = []

    def count(revision: Revision) -> bytes:
        given.append(revision)
        return b"v"

    async def write(worker: int) -> int:
        done = 0
        for i in range(60):
            breaking.armed = (worker + i) % 7 == 0
            try:
                await store.put(T, f"w{worker}", f"n{i}", count, expect=None)
                done += 1
            except StorageFailed:
                pass
        return done

    total = sum(await asyncio.gather(*(write(w) for w in range(8))))
    breaking.armed = False
    await store.put(T, "end", "end", count, expect=None)
    assert len(given) == len(set(given))
    assert given == sorted(given)
    assert store.count(T) == total + 1
    assert 0 < total < 480


async def test_objects_and_history_survive_restart(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    for i in range(5):
        await store.put(T, "ns", f"n{i}", text("v"), expect=None)
    await store.put("leases", "kube-system", "l", text("v"), expect=None)
    entry = store.get(T, "ns", "n3")
    assert entry
    await store.delete(T, "ns", "n3", text("gone"), expect=entry)
    await store.close()

    store = await SqliteStore.open(tmp_path)
    assert store.revision == 7
    assert names(store.scan(T)) == ["ns/n0", "ns/n1", "ns/n2", "ns/n4"]
    assert sorted(store.tables()) == ["leases", T]
    assert (await store.put(T, "ns", "n3", text("new"), expect=None)).value == b"new@8"
    feed = store.watch(T, since=Revision(4))
    assert [(e.type, e.revision) for e in await feed.next_batch()] == [("ADDED", 5), ("DELETED", 7), ("ADDED", 8)]
    await store.close()


async def test_counter_survives_the_deletion_of_the_newest_object(tmp_path: Path) -> None:
    for revision in (1, 3, 5):
        store = await SqliteStore.open(tmp_path, history_events=1)
        entry = await store.put(T, "", "a", text("v"), expect=None)
        assert entry.revision == revision
        await store.delete(T, "", "a", text("gone"), expect=entry)
        await store.close()


async def test_previous_state_of_events_is_rebuilt_from_log_after_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "_TRIM_STEP", 1)
    store = await SqliteStore.open(tmp_path, history_events=4)
    old = await store.put(T, "", "old", text("v"), expect=None)
    new = await store.put(T, "", "new", text("v"), expect=None)
    old = await store.put(T, "", "old", text("w"), expect=old)
    new = await store.put(T, "", "new", text("w"), expect=new)
    await store.put(T, "", "old", text("x"), expect=old)
    await store.put("leases", "", "l", text("v"), expect=None)  # the log is trimmed along with the next commit
    await store.close()

    store = await SqliteStore.open(tmp_path, history_events=10)
    assert store.oldest == 1
    events = await store.watch(T, since=Revision(1)).next_batch()
    assert [(e.type, e.entry.value) for e in events] == [
        ("ADDED", b"v@2"),
        ("MODIFIED", b"w@3"),
        ("MODIFIED", b"w@4"),
        ("MODIFIED", b"x@5"),
    ]
    assert events[0].before is None
    assert events[1].before is UNKNOWN
    assert events[2].before is events[0].entry
    assert events[3].before is events[1].entry
    assert events[3].entry is store.get(T, "", "old")  # one copy of the bytes
    assert [e.value for e in store.scan(T, at=Revision(4))] == [b"w@4", b"w@3"]
    with pytest.raises(Compacted):
        store.scan(T, at=Revision(2))
    await store.close()


async def test_watch_older_than_history_is_compacted(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, history_events=3)
    for i in range(10):
        await store.put(T, "", f"n{i}", text("v"), expect=None)
    assert store.oldest == 7
    store.watch(T, since=Revision(7)).close()
    with pytest.raises(Compacted) as refused:
        store.watch(T, since=Revision(6))
    assert str(refused.value) == "too old resource version: 6 (7)"
    with pytest.raises(Compacted):
        store.scan(T, at=Revision(6))
    await store.close()


async def test_close_flushes_pending_writes_to_disk(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    writes = [asyncio.ensure_future(store.put(T, "", f"n{i}", text("v"), expect=None)) for i in range(20)]
    feed = store.watch(T, since=Revision(0))
    await asyncio.sleep(0)
    await store.close()
    assert [w.result().revision for w in writes] == list(range(1, 21))
    with pytest.raises(StorageFailed, match="closed"):
        await store.put(T, "", "late", text("v"), expect=None)
    assert len(await feed.next_batch()) == 20
    with pytest.raises(StopAsyncIteration):
        await feed.next_batch()
    with pytest.raises(StopAsyncIteration):
        await store.watch(T, since=Revision(20)).next_batch()
    await store.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lock", "state.db"]


async def test_scan_all_walks_every_table(store: SqliteStore) -> None:
    writes = [store.put(f"t{i % 3}", f"ns{i % 5}", f"n{i:04}", text("v"), expect=None) for i in range(1700)]
    await asyncio.gather(*writes)
    seen = [entry async for entry in store.scan_all()]
    assert len({(e.table, e.namespace, e.name) for e in seen}) == len(seen) == 1700


async def test_single_batch_may_create_update_and_delete_the_same_key(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)

    def begin(value: str) -> asyncio.Future[StoreEntry]:
        expect = store.latest(T, "", "a")
        return asyncio.ensure_future(store.put(T, "", "a", text(value), expect=expect))

    writes = []
    for round_ in range(3):
        writes.append(begin(f"{round_}"))
        await asyncio.sleep(0)
        writes.append(begin(f"{round_}+"))
        await asyncio.sleep(0)
        expect = store.latest(T, "", "a")
        assert expect
        writes.append(asyncio.ensure_future(store.delete(T, "", "a", text("gone"), expect=expect)))
        await asyncio.sleep(0)
    writes.append(begin("end"))
    await asyncio.gather(*writes)
    await store.close()
    store = await SqliteStore.open(tmp_path)
    assert [e.value for e in store.scan(T)] == [b"end@10"]
    types = [e.type for e in await store.watch(T, since=Revision(0)).next_batch()]
    assert types == ["ADDED", "MODIFIED", "DELETED"] * 3 + ["ADDED"]
    await store.close()
