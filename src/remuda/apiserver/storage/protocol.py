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
    """The committed events of one table after a revision, in order, without gap or duplicate."""

    @property
    def revision(self) -> Revision:
        """Every event up to here has been handed out (the store's revision when the feed is drained)."""

    async def next_batch(self) -> Sequence[StoreEvent]:
        """Waits for at least one event and returns all that are ready. Raises FeedOverflow, or StopAsyncIteration
        after `close` of the feed or the store."""

    def close(self) -> None: ...


class Store(Protocol):
    @property
    def revision(self) -> Revision:
        """The newest committed revision."""

    def get(self, table: str, namespace: str, name: str) -> StoreEntry | None:
        """The committed state."""

    def latest(self, table: str, namespace: str, name: str) -> StoreEntry | None:
        """The committed state or, if a write of this key is on its way to disk, that one: what a
        read-modify-write must start from. Never show it to a reader."""

    def scan(
        self,
        table: str,
        namespace: str = "",
        *,
        after: tuple[str, str] | None = None,
        limit: int = 0,
        at: Revision | None = None,
    ) -> Sequence[StoreEntry]:
        """Entries in the order of upstream's keys, `namespace/name` as text (so `a-b` before `a`); of all
        namespaces when `namespace` is empty; those behind the key `after`; `at` an older revision (raises
        Compacted when its history is gone)."""

    def intact(self, table: str, namespace: str = "", *, limit: int = 0) -> Sequence[StoreEntry]:
        """Like `scan`, without the objects that are damaged: for those who lose nothing by not knowing them."""

    @property
    def damaged(self) -> Sequence[Damage]:
        """The objects that are damaged on disk; found when the store was opened."""

    def count(self, table: str, namespace: str = "") -> int:
        """Return how many entries are committed, in one namespace or in all."""

    def count_latest(self, table: str, namespace: str) -> int:
        """Return how many entries of a namespace there are once the writes on their way are committed. They are
        written in order, so that a write decided on this number is void if one of them fails."""

    def scan_latest(self, table: str, namespace: str = "") -> Sequence[StoreEntry]:
        """Return the entries there are once the writes on their way are committed, in no particular order. Never show
        them to a reader."""

    def tables(self) -> Iterable[str]:
        """Every table that holds an entry."""

    async def put(
        self,
        table: str,
        namespace: str,
        name: str,
        encode: Callable[[Revision], bytes],
        *,
        expect: StoreEntry | None,
    ) -> StoreEntry:
        """Creates (expect None) or replaces (expect: what `latest` gave). `encode` is called once, at once,
        with the revision this write gets. Returns when it is on disk and visible.
        Raises WriteConflict before anything is written; StorageFailed."""

    async def delete(
        self, table: str, namespace: str, name: str, encode: Callable[[Revision], bytes], *, expect: StoreEntry
    ) -> StoreEntry:
        """Removes; `encode` renders the last state at the deleting revision, for the DELETED event."""

    async def settle(self, revision: Revision | None = None) -> None:
        """Return when the write of a revision that `latest` showed is on disk; without one, when all writes are that
        are on their way now. An answer that rests on such a write, be it a refusal, must not be given before: readers
        do not see the write yet, and a crash would undo it. Raises StorageFailed if it fails."""

    def watch(self, table: str, namespace: str = "", name: str = "", *, since: Revision) -> Feed:
        """Events with revision > since, of all namespaces and names where those are empty. Raises Compacted, also for a
        revision that is not reached yet: nobody can know it from here."""

    def end_watches(self, table: str) -> None:
        """The feeds of a table end, after what they still hold: it is not served any more."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` with each committed batch, of every table, on the loop, before the writers of that
        batch are told: an index kept by a listener is never behind an acknowledged write.
        Returns what ends the subscription."""

    def scan_all(self) -> AsyncIterator[StoreEntry]:
        """Every intact entry of every table, yielding to the loop now and then."""

    @property
    def oldest(self) -> Revision:
        """The oldest revision a watch may start from."""
