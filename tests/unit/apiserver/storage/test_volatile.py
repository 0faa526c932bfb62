"""The store without a disk: the same promises, except that nothing outlives it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.apiserver.storage.protocol import Store
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.types import StorageFailed, WriteConflict
from remuda.kube.client import Target

T = "machines.cluster.x-k8s.io"


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    opened = SqliteStore.volatile()
    yield opened
    await opened.close()


async def test_volatile_store_starts_at_revision_zero(store: SqliteStore) -> None:
    promised: Store = store
    assert promised.revision == 0


async def test_volatile_write_is_visible_once_acknowledged(store: SqliteStore) -> None:
    feed = store.watch(T, since=store.revision)
    writing = asyncio.ensure_future(store.put(T, "ns", "m", lambda revision: b"one", expect=None))
    await asyncio.sleep(0)
    assert store.in_flight == 1
    assert store.get(T, "ns", "m") is None
    entry = await writing
    assert store.in_flight == 0
    assert store.get(T, "ns", "m") == entry
    assert [event.entry for event in await feed.next_batch()] == [entry]


async def test_concurrent_volatile_writes_are_delivered_in_order(store: SqliteStore) -> None:
    seen: list[int] = []
    store.subscribe(lambda events: seen.extend(event.entry.revision for event in events))
    await asyncio.gather(*(store.put(T, "ns", f"m{n}", lambda revision: b"x", expect=None) for n in range(50)))
    assert seen == list(range(1, 51))


async def test_stale_volatile_write_raises_conflict(store: SqliteStore) -> None:
    entry = await store.put(T, "ns", "m", lambda revision: b"one", expect=None)
    await store.put(T, "ns", "m", lambda revision: b"two", expect=entry)
    with pytest.raises(WriteConflict):
        await store.put(T, "ns", "m", lambda revision: b"three", expect=entry)


async def test_volatile_store_starts_no_thread_and_rejects_writes_after_close() -> None:
    before = threading.active_count()
    store = SqliteStore.volatile()
    assert threading.active_count() == before
    await store.close()
    with pytest.raises(StorageFailed):
        await store.put(T, "ns", "m", lambda revision: b"one", expect=None)


async def test_server_with_volatile_store_writes_no_database(tmp_path: Path) -> None:
    maps = Target("v1", "configmaps")
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0, volatile=True))
    try:
        await server.client().create(maps, "default", {"metadata": {"name": "here"}})
        assert b'"here"' in await server.client().get(maps, "default", "here")
        assert not (tmp_path / "state.db").exists()
    finally:
        await server.stop()
