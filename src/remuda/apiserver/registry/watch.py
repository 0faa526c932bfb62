"""One watch: a feed of the store, seen through a selection, in one version of a resource.

An object that a selector stops matching is reported as DELETED in its last matching state, one that starts to match as
ADDED. Bookmarks carry the revision up to which all events were sent; an idle watch gets one per minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from remuda.apiserver import ApiServerError
from remuda.apiserver.registry.calls import WatchLine
from remuda.apiserver.registry.objects import decode, encode_at
from remuda.apiserver.registry.selection import Selection
from remuda.apiserver.resource import Resource
from remuda.apiserver.storage.protocol import Feed, Store
from remuda.apiserver.storage.types import Compacted, EventType, FeedOverflow, Revision, StoreEntry, StoreEvent
from remuda.kube.errors import StatusError, gone

BOOKMARK_SECONDS = 60.0  # upstream's frequency
Render = Callable[[Resource, StoreEntry], bytes]


def error_line(error: StatusError) -> WatchLine:
    return WatchLine("ERROR", msgspec.json.encode(error.status()))


def _present(store: Store, resource: Resource, selection: Selection) -> Sequence[StoreEntry]:
    """Return the entries that may match. If only one object can match, it is looked up directly, without a scan."""
    if selection.name and (selection.namespace or not resource.namespaced):
        found = store.get(resource.table, selection.namespace, selection.name)
        return [] if found is None else [found]
    return store.scan(resource.table, selection.namespace)


class RegistryWatch:
    def __init__(
        self,
        *,
        store: Store,
        resource: Resource,
        render: Render,
        selection: Selection,
        since: Revision,
        initial: Literal["none", "plain", "marked"],
        bookmarks: bool,
    ) -> None:
        self._resource = resource
        self._render = render
        self._selection = selection
        self._bookmarks = bookmarks
        self._told = since  # revision of the last line, so that no bookmark repeats it
        self._ended = False
        self._feed: Feed | None = None
        self._ready: list[WatchLine] = []
        try:
            # The feed is opened and the state scanned without an await in between: no event is missed or repeated.
            self._feed = store.watch(resource.table, selection.namespace, selection.name, since=since)
        except Compacted as compacted:
            # As upstream: the 410 is an event of the stream and not the status of the response.
            self._ready.append(error_line(gone(str(compacted))))
            self._ended = True
            return
        if initial != "none":
            self._ready.extend(self._initial(store))
        if initial == "marked":
            self._ready.append(self._bookmark(since, {"k8s.io/initial-events-end": "true"}))

    def _initial(self, store: Store) -> Sequence[WatchLine]:
        matching = [e for e in _present(store, self._resource, self._selection) if self._selection.matches(e)]
        return [WatchLine("ADDED", self._render(self._resource, e)) for e in matching]

    async def next_batch(self) -> Sequence[WatchLine]:
        if self._ready:
            ready, self._ready = self._ready, []
            return ready
        while not self._ended:
            lines = await self._wait()
            if lines:
                return lines
        return ()

    async def _wait(self) -> Sequence[WatchLine]:
        assert self._feed is not None
        try:
            if not self._bookmarks:
                return self._translate(await self._feed.next_batch())
            async with asyncio.timeout(BOOKMARK_SECONDS):
                events = await self._feed.next_batch()
            return self._translate(events)
        except TimeoutError:
            if self._feed.revision <= self._told:
                return ()
            self._told = self._feed.revision
            return [self._bookmark(self._told)]
        except FeedOverflow:
            self.close()
            return [error_line(gone("the watch fell too far behind; list again"))]
        except (StopAsyncIteration, _PastUnknown) as end:
            self.close()
            return [error_line(gone(f"too old resource version: {end}"))] if isinstance(end, _PastUnknown) else ()

    def close(self) -> None:
        self._ended = True
        if self._feed is not None:
            self._feed.close()

    def _translate(self, events: Sequence[StoreEvent]) -> Sequence[WatchLine]:
        self._told = events[-1].revision
        selection = self._selection
        if selection.is_everything:
            return [self._line(event.type, event) for event in events]
        if not selection.is_mutable:
            return [self._line(event.type, event) for event in events if selection.matches(event.entry)]
        lines = []
        for event in events:
            line = self._translate_selected(event)
            if line is not None:
                lines.append(line)
        return lines

    def _translate_selected(self, event: StoreEvent) -> WatchLine | None:
        matches = self._selection.matches(event.entry)
        if event.type != "MODIFIED":
            return self._line(event.type, event) if matches else None
        before = event.before
        if not isinstance(before, StoreEntry):
            # Without the previous state, ADDED and MODIFIED cannot be distinguished; a wrong guess would stay with the
            # client.
            raise _PastUnknown(event.revision)
        if self._selection.matches(before):
            return self._line("MODIFIED", event) if matches else self._left(before, event.revision)
        return self._line("ADDED", event) if matches else None

    def _left(self, before: StoreEntry, revision: Revision) -> WatchLine:
        last = StoreEntry(
            before.table, before.namespace, before.name, revision, encode_at(decode(before.value), revision)
        )
        return WatchLine("DELETED", self._render(self._resource, last))

    def _line(self, type_: EventType, event: StoreEvent) -> WatchLine:
        value = self._render(self._resource, event.entry)
        if value is event.entry.value:  # as stored: every watcher sends the same bytes
            return WatchLine(type_, value, event.lines)
        return WatchLine(type_, value)

    def _bookmark(self, revision: Revision, annotations: dict[str, str] | None = None) -> WatchLine:
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        resource = self._resource
        body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return WatchLine("BOOKMARK", msgspec.json.encode(body))


class _PastUnknown(ApiServerError):
    """Raised when a selector needs the state before an event, and a restart lost it: the client must list again."""
