"""Watchers: every committed change is handed to the feeds of its table, of its namespace and of its name.

A feed is a buffer and at most one future; there is no task per feed. A batch is sorted by topic once and each feed
takes its part as a whole, so the cost per feed and batch is one call. Feeds of one name cost nothing while others
change: thousands of hosts watch a Secret each. All of it runs on the event loop.

A feed's buffer is bounded by count and bytes. One that overflows is dropped whole, for a feed may miss nothing:
its reader gets FeedOverflow and starts over from a list. What a feed resumes with is not counted, it is shared with
the history and as bounded as that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from remuda.apiserver.storage.types import FeedOverflow, Revision, StoreEvent

DEFAULT_FEED_EVENTS = 10_000
DEFAULT_FEED_BYTES = 32 << 20

Topic = tuple[str, str, str]  # (table, namespace, name); what is empty is any


class BufferedFeed:
    """The `Feed` of one watcher. See `protocol.Feed`."""

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
        """Nothing more will come; what is buffered is still handed out."""
        self._ended = True
        self._wake()

    def push(self, events: list[StoreEvent], size: int) -> bool:
        """Takes a batch; False when the feed is full and has been given up."""
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
        # One batch larger than the whole buffer is no sign of a slow reader: a reader that was waiting gets it.
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
        """Hands a committed batch to every feed it concerns. Wakes readers but runs none of their code."""
        self.revision = events[-1].entry.revision
        if self._by_topic:
            for topic, matching in self._sorted_by_topic(events).items():
                size = sum(len(event.entry.value) for event in matching)
                # A list first: `remove` changes the mapping that is iterated here.
                for feed in [feed for feed in self._by_topic[topic] if not feed.push(matching, size)]:
                    self.remove(feed)

    def end(self, table: str) -> None:
        """Nothing of this table will ever be watched again; what is buffered is still handed out."""
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
