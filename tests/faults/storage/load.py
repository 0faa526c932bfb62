"""A busy life of a store: contending writers and resuming watchers, every observation reported as it is made."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from remuda.apiserver.storage.protocol import Feed
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.types import (
    Compacted,
    FeedOverflow,
    Revision,
    StorageFailed,
    StoreEntry,
    StoreEvent,
    WriteConflict,
)
from tests.faults.storage.checker import (
    Acknowledged,
    Attempted,
    Bookmark,
    Change,
    Checker,
    Failed,
    Held,
    Key,
    Record,
    Relisted,
    Seen,
    Started,
    WatcherLog,
    Watching,
)

Report = Callable[[Record], None]

TABLES = ("machines", "leases")
NAMESPACES = ("a", "a-b")
NAMES = tuple(f"n{i}" for i in range(6))
WRITERS = 6
PATIENCE = 6  # failures in a row before a writer gives up

# Short enough that watchers which were away for a while are told so.
HISTORY_EVENTS = 40

WATCHERS = {
    "machines": ("machines", ""),
    "machines-a": ("machines", "a"),
    "leases": ("leases", ""),
    "leases-ab": ("leases", "a-b"),
}


def new_checker() -> Checker:
    return Checker({name: WatcherLog(*topic) for name, topic in WATCHERS.items()})


async def live(
    home: Path, rng: random.Random, positions: dict[str, int], report: Report, vfs: str | None = None
) -> None:
    """Opens the store, resumes the watchers at `positions` and writes until the store fails or the task is killed."""
    store = await SqliteStore.open(home, history_events=HISTORY_EVENTS, vfs=vfs)
    try:
        state = [held(entry) for table in TABLES for entry in store.scan(table)]
        report(Started(store.revision, state))
        watchers = [
            asyncio.ensure_future(_watch(store, name, positions[name], rng.random() < 0.5, report))
            for name in WATCHERS
            if rng.random() < 0.8  # the others stay away for this life
        ]
        await asyncio.gather(*(_write(store, random.Random(rng.random()), report) for _ in range(WRITERS)))
    finally:
        await store.close()
    await asyncio.gather(*watchers)


def held(entry: StoreEntry) -> Held:
    return Held(entry.revision, (entry.table, entry.namespace, entry.name), _token(entry))


def _token(entry: StoreEntry) -> str:
    return entry.value[:24].decode()


def _change(event: StoreEvent) -> Change:
    entry = event.entry
    return Change(entry.revision, event.type, (entry.table, entry.namespace, entry.name), _token(entry))


async def _write(store: SqliteStore, rng: random.Random, report: Report) -> None:
    """One writer, changing random keys until the disk seems to be gone."""
    failures = 0
    while failures < PATIENCE:
        if rng.random() < 0.6:  # out of step with the others, so that writes queue behind others on their way
            await asyncio.sleep(rng.random() * 0.0005)
        key = (rng.choice(TABLES), rng.choice(NAMESPACES), rng.choice(NAMES))
        try:
            failures = 0 if await _write_once(store, key, rng, report) else failures + 1
        except WriteConflict:
            pass


async def _write_once(store: SqliteStore, key: Key, rng: random.Random, report: Report) -> bool:
    expect = store.latest(*key)
    deleting = expect is not None and rng.random() < 0.25
    kind = "DELETED" if deleting else "MODIFIED" if expect else "ADDED"
    token = f"{rng.getrandbits(96):024x}"
    padding = "." * rng.choice((0, 100, 2_000, 2_000, 2_000, 30_000))
    attempt: list[Change] = []

    def encode(revision: Revision) -> bytes:
        attempt.append(Change(revision, kind, key, token))
        report(Attempted(attempt[0], alone=store.in_flight == 0))
        return (token + padding).encode()

    try:
        if deleting and expect is not None:
            await store.delete(*key, encode, expect=expect)
        else:
            await store.put(*key, encode, expect=expect)
    except StorageFailed:
        report(Failed(attempt[0]))
        return False
    report(Acknowledged(attempt[0]))
    return True


async def _watch(store: SqliteStore, name: str, since: int, bookmarks: bool, report: Report) -> None:
    """Reads until the store is closed; starts over from a list when told that its revision is gone."""
    table, namespace = WATCHERS[name]
    try:
        feed: Feed = store.watch(table, namespace, since=Revision(since))
        report(Watching(name, since))
    except Compacted:
        report(Relisted(name, store.revision, [held(entry) for entry in store.scan(table, namespace)]))
        feed = store.watch(table, namespace, since=store.revision)
    try:
        while True:
            changes: Sequence[StoreEvent] = await feed.next_batch()
            report(Seen(name, [_change(event) for event in changes]))
            if bookmarks:
                report(Bookmark(name, feed.revision))
    except (StopAsyncIteration, FeedOverflow):
        pass
