"""Feeds: what each watcher gets, what its revision promises, and what happens to slow ones."""

from __future__ import annotations

import asyncio
import random

import pytest

from remuda.apiserver.storage.feeds import BufferedFeed
from remuda.apiserver.storage.history import History
from remuda.apiserver.storage.memory import Memory
from remuda.apiserver.storage.types import Compacted, FeedOverflow, Revision, StoreEntry, StoreEvent
from tests.lab.limits import LIMIT_SECONDS


def added(revision: int, namespace: str = "ns", table: str = "t", size: int = 10) -> StoreEvent:
    return StoreEvent("ADDED", StoreEntry(table, namespace, f"n{revision}", Revision(revision), b"v" * size), None)


@pytest.fixture
def memory() -> Memory:
    return Memory({}, History(), Revision(0))


async def taken(feed: BufferedFeed) -> list[int]:
    return [event.revision for event in await asyncio.wait_for(feed.next_batch(), LIMIT_SECONDS)]


async def test_feed_receives_only_its_table_and_namespace(memory: Memory) -> None:
    whole, part, other = (memory.watch("t", ns, Revision(0)) for ns in ("", "ns", "other"))
    memory.apply([added(1), added(2, "other"), added(3, table="u"), added(4)])
    assert await taken(whole) == [1, 2, 4]
    assert await taken(part) == [1, 4]
    assert await taken(other) == [2]


async def test_single_name_feed_is_not_woken_by_other_objects(memory: Memory) -> None:
    memory.apply([added(1), added(2)])
    mine, anywhere = (memory.watch("t", namespace, Revision(0), "n2") for namespace in ("ns", ""))
    assert await taken(mine) == await taken(anywhere) == [2]
    waiting = asyncio.ensure_future(mine.next_batch())
    await asyncio.sleep(0)
    memory.apply([added(3), added(4)])
    await asyncio.sleep(0)
    assert not waiting.done()
    assert mine.revision == 4  # what was not for it is behind it all the same
    again = StoreEvent("MODIFIED", StoreEntry("t", "ns", "n2", Revision(5), b"v"), None)
    memory.apply([again])
    assert await waiting == [again]
    assert await taken(anywhere) == [5]


async def test_feed_resumes_from_history_without_gap(memory: Memory) -> None:
    memory.apply([added(1), added(2), added(3)])
    feed = memory.watch("t", "", Revision(1))
    memory.apply([added(4)])
    assert await taken(feed) == [2, 3, 4]
    waiting = asyncio.ensure_future(feed.next_batch())
    await asyncio.sleep(0)
    memory.apply([added(5)])
    assert [e.revision for e in await waiting] == [5]


async def test_feed_revision_covers_only_delivered_events(memory: Memory) -> None:
    feed = memory.watch("t", "", Revision(0))
    assert feed.revision == 0
    memory.apply([added(1, table="u"), added(2, table="u")])
    assert feed.revision == 2  # nothing for this feed up to there
    memory.apply([added(3), added(4, table="u")])
    assert feed.revision == 2  # 3 is ready but not handed out; and what was said once stays true
    memory.apply([added(5)])
    assert feed.revision == 2
    assert await taken(feed) == [3, 5]
    assert feed.revision == 5
    resumed = memory.watch("t", "", Revision(2))
    assert resumed.revision == 2
    assert await taken(resumed) == [3, 5]
    assert resumed.revision == 5


async def test_watch_from_future_revision_is_compacted(memory: Memory) -> None:
    with pytest.raises(Compacted, match=r"unknown resource version: 3 \(0\)"):
        memory.watch("t", "", Revision(3))


@pytest.mark.parametrize(("max_events", "max_bytes", "size"), [(5, 1 << 20, 1), (1000, 500, 100)])
async def test_slow_feed_overflows_without_affecting_others(
    memory: Memory, max_events: int, max_bytes: int, size: int
) -> None:
    memory.feeds.max_events, memory.feeds.max_bytes = max_events, max_bytes
    slow, quick = memory.watch("t", "", Revision(0)), memory.watch("t", "", Revision(0))
    for revision in range(1, 7):
        memory.apply([added(revision, size=size)])
        assert await taken(quick) == [revision]
    assert slow.revision == 0
    assert quick.revision == 6
    with pytest.raises(FeedOverflow):
        await slow.next_batch()
    with pytest.raises(FeedOverflow):
        await slow.next_batch()
    assert len(memory.feeds) == 1
    slow.close()


async def test_waiting_reader_receives_batch_larger_than_buffer(memory: Memory) -> None:
    memory.feeds.max_events = 3
    feed = memory.watch("t", "", Revision(0))
    reader = asyncio.ensure_future(feed.next_batch())
    await asyncio.sleep(0)
    memory.apply([added(i) for i in range(1, 6)])  # one batch larger than the buffer is not the reader's fault
    assert [e.revision for e in await reader] == [1, 2, 3, 4, 5]


async def test_closed_feed_ends_its_reader(memory: Memory) -> None:
    feed = memory.watch("t", "", Revision(0))
    reader = asyncio.ensure_future(feed.next_batch())
    await asyncio.sleep(0)
    feed.close()
    feed.close()
    with pytest.raises(StopAsyncIteration):
        await feed.next_batch()
    with pytest.raises((StopAsyncIteration, RuntimeError)):
        await reader
    assert len(memory.feeds) == 0


async def test_cancelled_feed_reader_loses_no_events(memory: Memory) -> None:
    feed = memory.watch("t", "", Revision(0))
    reader = asyncio.ensure_future(feed.next_batch())
    await asyncio.sleep(0)
    memory.apply([added(1)])
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await taken(feed) == [1]


async def test_feed_rejects_a_second_reader(memory: Memory) -> None:
    feed = memory.watch("t", "", Revision(0))
    reader = asyncio.ensure_future(feed.next_batch())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="one reader"):
        await feed.next_batch()
    reader.cancel()


async def test_thousands_of_feeds_each_receive_all_events_once(memory: Memory) -> None:
    rng = random.Random(1)
    feeds = [memory.watch("t", rng.choice(["", "a", "b"]), Revision(0)) for _ in range(2000)]
    sent = [added(revision, rng.choice(["a", "b"])) for revision in range(1, 31)]
    for start in range(0, 30, 3):
        memory.apply(sent[start : start + 3])
    for feed in feeds:
        namespace = feed.topic[1]
        assert await feed.next_batch() == [e for e in sent if namespace in ("", e.entry.namespace)]
        assert feed.revision == 30
