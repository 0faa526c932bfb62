"""Feeds of watchers: every committed change is delivered to the feeds of its table, its namespace and its name.

A feed is a buffer and at most one future; there is no task per feed. A batch is sorted by topic once and each feed
takes its part as a whole, so the cost per feed and batch is one call. Feeds of one name cost nothing while other
objects change: thousands of hosts watch one Secret each. All of it runs on the event loop.

A feed's buffer is limited by count and bytes. A feed that overflows is dropped, because it must not miss an event: its
reader gets FeedOverflow and starts over from a list. The events that a feed resumes with do not count: they are shared
with the history, which is limited too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from remuda.apiserver.storage.types import FeedOverflow, Revision, StoreEvent

DEFAULT_FEED_EVENTS = 10_000
DEFAULT_FEED_BYTES = 32 << 20

Topic = tuple[str, str, str]  # (table, namespace, name); an empty part means any


class BufferedFeed:
    """Feed of one watcher. See `protocol.Feed`."""

    __slots__ = (
        "_backlog",
        "_buffer",
        "_bytes",
        "_ended",
        "_feeds",
        "_handed",
        "_overflowed",
        "_waiter",
        "topic",
    )

    def __init__(self, feeds: Feeds, topic: Topic, since: Revision, backlog: list[StoreEvent]) -> None:
        self.topic = topic
        self._feeds = feeds
        self._backlog = backlog
        self._buffer: list[StoreEvent] = []
        self._bytes = 0
        self._handed = since
        self._ended = False
        self._overflowed = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def revision(self) -> Revision:
        if self._backlog or self._buffer or self._ended or self._overflowed:
            return self._handed
        return max(self._handed, self._feeds.revision)

    async def next_batch(self) -> Sequence[StoreEvent]:
        while not (self._backlog or self._buffer):
            if self._overflowed:
                raise FeedOverflow(f"the watch of {self.topic[0]} fell too far behind after revision {self._handed}")
            if self._ended:
                raise StopAsyncIteration
            await self._wait()
        batch = self._backlog + self._buffer if self._backlog else self._buffer
        self._backlog, self._buffer, self._bytes = [], [], 0
        self._handed = batch[-1].entry.revision
        return batch

    def close(self) -> None:
        self._backlog, self._buffer = [], []
        self.end()
        self._feeds.remove(self)

    def end(self) -> None:
        """End the feed; buffered events are still delivered."""
        self._ended = True
        self._wake()

    def push(self, events: list[StoreEvent], size: int) -> bool:
        """Add a batch. Return False if the feed is full and was dropped."""
        if not self._buffer and not self._backlog:
            # Everything before this batch has been handed out. Recording that keeps `revision` from going back while
            # the batch is buffered.
            self._handed = max(self._handed, Revision(events[0].entry.revision - 1))
        self._bytes += size
        if len(self._buffer) + len(events) > self._feeds.max_events or self._bytes > self._feeds.max_bytes:
            return self._give_up(events)
        self._buffer.extend(events)
        self._wake()
        return True

    def _give_up(self, events: list[StoreEvent]) -> bool:
        # A batch larger than the whole buffer does not mean a slow reader: a waiting reader gets it.
        if not self._buffer and not self._backlog:
            self._buffer = events
            self._wake()
            return True
        self._backlog, self._buffer = [], []
        self._overflowed = True
        self._wake()
        return False

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise RuntimeError("a feed has one reader")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Feeds:
    """All open feeds by topic."""

    def __init__(
        self, revision: Revision, *, max_events: int = DEFAULT_FEED_EVENTS, max_bytes: int = DEFAULT_FEED_BYTES
    ) -> None:
        self.revision = revision
        self.max_events = max_events
        self.max_bytes = max_bytes
        self._by_topic: dict[Topic, dict[BufferedFeed, None]] = {}
        self._closed = False

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def open(self, topic: Topic, since: Revision, backlog: list[StoreEvent]) -> BufferedFeed:
        feed = BufferedFeed(self, topic, since, backlog)
        if self._closed:
            feed.end()
        else:
            self._by_topic.setdefault(topic, {})[feed] = None
        return feed

    def remove(self, feed: BufferedFeed) -> None:
        members = self._by_topic.get(feed.topic)
        if members is not None:
            members.pop(feed, None)
            if not members:
                del self._by_topic[feed.topic]

    def publish(self, events: Sequence[StoreEvent]) -> None:
        """Deliver a committed batch to all its feeds. Wake readers, but run none of their code."""
        self.revision = events[-1].entry.revision
        if self._by_topic:
            for topic, matching in self._sorted_by_topic(events).items():
                size = sum(len(event.entry.value) for event in matching)
                # A list first: `remove` changes the mapping that is iterated here.
                for feed in [feed for feed in self._by_topic[topic] if not feed.push(matching, size)]:
                    self.remove(feed)

    def end(self, table: str) -> None:
        """End all feeds of this table; buffered events are still delivered."""
        for topic in [topic for topic in self._by_topic if topic[0] == table]:
            for feed in self._by_topic.pop(topic):
                feed.end()

    def close(self) -> None:
        self._closed = True
        for members in self._by_topic.values():
            for feed in members:
                feed.end()
        self._by_topic.clear()

    def _sorted_by_topic(self, events: Sequence[StoreEvent]) -> dict[Topic, list[StoreEvent]]:
        topics: dict[Topic, list[StoreEvent]] = {}
        for event in events:
            table, namespace, name = event.entry.table, event.entry.namespace, event.entry.name
            for topic in dict.fromkeys(
                ((table, "", ""), (table, namespace, ""), (table, "", name), (table, namespace, name))
            ):
                if topic in self._by_topic:
                    topics.setdefault(topic, []).append(event)
        return topics
