"""Interface of the store for the registry, upkeep and authorisation. `sqlite.py` is the one implementation.

All methods are called on the event loop. Reads never block: they are served from memory, from committed state. A write
is visible, and its event delivered, only once it is on disk. Methods that read one object or a list raise
ObjectsDamaged where the answer would lack an object that is damaged on disk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Protocol

from remuda.apiserver.storage.types import Damage, Listener, Revision, StoreEntry, StoreEvent


class Feed(Protocol):
    """Committed events of one table after a revision, in order, without gap or duplicate."""

    @property
    def revision(self) -> Revision:
        """Revision up to which every event was delivered (the store's revision when the feed is drained)."""

    async def next_batch(self) -> Sequence[StoreEvent]:
        """Wait for at least one event and return all that are ready. Raise FeedOverflow, or StopAsyncIteration after
        `close` of the feed or the store.
        """

    def close(self) -> None: ...


class Store(Protocol):
    @property
    def revision(self) -> Revision:
        """Return the newest committed revision."""

    def get(self, table: str, namespace: str, name: str) -> StoreEntry | None:
        """Return the committed entry."""

    def latest(self, table: str, namespace: str, name: str) -> StoreEntry | None:
        """Return the newest write of this key, in flight or committed, from which a read-modify-write must start. Never
        show it to a reader.
        """

    def scan(
        self,
        table: str,
        namespace: str = "",
        *,
        after: tuple[str, str] | None = None,
        limit: int = 0,
        at: Revision | None = None,
    ) -> Sequence[StoreEntry]:
        """Yield entries in the order of upstream's keys, `namespace/name` as text (so `a-b` before `a`).

        `namespace`: empty means all. `after`: only entries after this key. `at`: an older revision (raises Compacted if
        its history is gone).
        """

    def intact(self, table: str, namespace: str = "", *, limit: int = 0) -> Sequence[StoreEntry]:
        """Scan without the damaged objects, for callers to whom they do not matter."""

    @property
    def damaged(self) -> Sequence[Damage]:
        """Return the objects that are damaged on disk, as found when the store was opened."""

    def count(self, table: str, namespace: str = "") -> int:
        """Return the number of committed entries, in one namespace or in all."""

    def count_latest(self, table: str, namespace: str) -> int:
        """Return the number of entries of a namespace, including writes in flight.

        They are written in order, so a write decided on this number fails if one of them fails.
        """

    def scan_latest(self, table: str, namespace: str = "") -> Sequence[StoreEntry]:
        """Return the entries, including writes in flight, in no particular order. Never show them to a reader."""

    def tables(self) -> Iterable[str]:
        """Return every table that has an entry."""

    async def put(
        self,
        table: str,
        namespace: str,
        name: str,
        encode: Callable[[Revision], bytes],
        *,
        expect: StoreEntry | None,
    ) -> StoreEntry:
        """Create (expect None) or replace (expect: the result of `latest`) an object. `encode` is called once,
        immediately, with the revision of this write.

        Return when the write is on disk and visible. Raise WriteConflict before anything is written; StorageFailed.
        """

    async def delete(
        self, table: str, namespace: str, name: str, encode: Callable[[Revision], bytes], *, expect: StoreEntry
    ) -> StoreEntry:
        """Delete an object; `encode` renders the last state at the deleting revision, for the DELETED event."""

    async def settle(self, revision: Revision | None = None) -> None:
        """Return when the write of a revision that `latest` showed is on disk; without a revision, when all writes in
        flight are.

        An answer that depends on such a write, even a refusal, must wait for it: readers do not see the write yet, and
        a crash would undo it. Raise StorageFailed if it fails.
        """

    def watch(self, table: str, namespace: str = "", name: str = "", *, since: Revision) -> Feed:
        """Return a feed of events with revision > since; an empty namespace or name means all.

        Raise Compacted, also for a revision in the future: it cannot come from this store.
        """

    def end_watches(self, table: str) -> None:
        """End the feeds of a table, after their buffered events: it is no longer served."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on the loop with each committed batch of every table, before the writers of that batch
        return: an index that a listener maintains is never behind an acknowledged write. Return a function that ends
        the subscription.
        """

    def scan_all(self) -> AsyncIterator[StoreEntry]:
        """Yield every intact entry of every table, and yield to the event loop from time to time."""

    @property
    def oldest(self) -> Revision:
        """Return the oldest revision from which a watch may start."""
