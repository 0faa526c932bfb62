"""Entries, events and errors of the store.

An *entry* is one object at one revision as immutable JSON bytes (metadata.resourceVersion included). An
*event* is one committed change. Both are shared by every reader and never change after commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, NewType

import msgspec

from remuda.apiserver import ApiServerError
from remuda.kube.errors import StatusError

Revision = NewType("Revision", int)

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

STORAGE_READ_ERROR = "StorageReadError"  # upstream's reason of an error

_MOST_NAMED = 10


class _Labelled(msgspec.Struct):
    labels: dict[str, str] | None = None


class _LabelledObject(msgspec.Struct):
    metadata: _Labelled = msgspec.field(default_factory=_Labelled)


_decode_labelled = msgspec.json.Decoder(_LabelledObject).decode
_NO_LABELS: dict[str, str] = {}


class StoreEntry:
    """One object at one revision. `table` names the stored resource, e.g. `machines.cluster.x-k8s.io`."""

    __slots__ = ("_fields", "_labels", "name", "namespace", "revision", "table", "value")

    def __init__(self, table: str, namespace: str, name: str, revision: Revision, value: bytes) -> None:
        self.table = table
        self.namespace = namespace
        self.name = name
        self.revision = revision
        self.value = value
        self._labels: dict[str, str] | None = None
        self._fields: dict[str, str] | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @property
    def labels(self) -> dict[str, str]:
        """Decoded once, when first asked for: most entries are never matched against a selector."""
        if self._labels is None:
            self._labels = _decode_labelled(self.value).metadata.labels or _NO_LABELS
        return self._labels

    def fields(self, extract: Callable[[bytes], dict[str, str]]) -> dict[str, str]:
        """The selectable fields of a kind, decoded once. One table always comes with one `extract`."""
        if self._fields is None:
            self._fields = extract(self.value)
        return self._fields

    def __repr__(self) -> str:
        return f"Entry({self.table} {self.namespace}/{self.name} @{self.revision})"


class _Unknown:
    """The state before an event that was read back from disk after a restart and whose past is compacted."""


UNKNOWN = _Unknown()


class StoreEvent:
    """One committed change. `entry` is the new state, or for DELETED the last state at the deleting revision.

    `before` is the state it replaced: None for ADDED, UNKNOWN when it was lost with a restart.
    """

    __slots__ = ("before", "entry", "lines", "type")

    def __init__(self, type_: EventType, entry: StoreEntry, before: StoreEntry | _Unknown | None) -> None:
        self.type: EventType = type_
        self.entry = entry
        self.before = before
        self.lines: dict[object, bytes] = {}  # wire encodings by format, made once for all watchers

    @property
    def revision(self) -> Revision:
        return self.entry.revision

    def __repr__(self) -> str:
        return f"Event({self.type} {self.entry!r})"


Listener = Callable[[Sequence[StoreEvent]], None]


class Compacted(ApiServerError):
    """The asked-for revision is older than the history kept, or is not of this history at all."""

    def __init__(self, asked: int, oldest: int, newest: int | None = None) -> None:
        ahead = newest is not None and asked > newest
        super().__init__(
            f"{'unknown' if ahead else 'too old'} resource version: {asked} ({newest if ahead else oldest})"
        )
        self.asked = asked
        self.oldest = oldest


class WriteConflict(ApiServerError):
    """The entry changed (or appeared, or vanished) since the caller read it; read `latest` and decide again."""


class StorageFailed(StatusError):
    """The write could not be made durable (disk full, I/O error). Nothing of it is visible."""

    def __init__(self, why: str) -> None:
        super().__init__(
            500, "InternalError", f"Internal error occurred: {why}", details={"causes": [{"message": why}]}
        )
        self.why = why


class DiskFull(StorageFailed):
    """There is no room for the write; deletes may still have some."""


class Damage(NamedTuple):
    """An object whose bytes on disk are not what was written: its row does not match its checksum."""

    table: str
    namespace: str
    name: str
    revision: int
    row: int  # in the database

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.table, self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.table} {self.namespace}/{self.name}" if self.namespace else f"{self.table} {self.name}"


class ObjectsDamaged(StatusError):
    """An object that was asked for, or that belongs to what was asked for, is damaged on disk. Upstream has the same
    answer for what it cannot read from etcd: never 404, which would mean that it was deleted."""

    def __init__(self, found: Sequence[Damage]) -> None:
        named = ", ".join(map(str, found[:_MOST_NAMED])) + (", …" if len(found) > _MOST_NAMED else "")
        does = "do not match their checksums" if len(found) > 1 else "does not match its checksum"
        super().__init__(
            500,
            STORAGE_READ_ERROR,
            f"damaged on disk: {named} {does}. Stop the server and run "
            "`remuda fsck --repair --from BACKUP` on its data directory",
            details={
                "causes": [
                    {"reason": "UnexpectedServerResponse", "message": f"damaged on disk: {one}", "field": str(one)}
                    for one in found[:_MOST_NAMED]
                ]
            },
        )


class FeedOverflow(ApiServerError):
    """A watcher fell so far behind that its buffer was dropped; it must start over from a list."""


class StoreUnusable(ApiServerError):
    """The store cannot be opened; the message is written for the person who started the server."""


class StoreLocked(StoreUnusable):
    """Another process works on the same directory."""


class StoreCorrupt(StoreUnusable):
    """The database on disk is damaged, or is not one of ours."""


class StoreTooNew(StoreUnusable):
    """The database was written by a newer version of the program."""
