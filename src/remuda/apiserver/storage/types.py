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
    """Object at one revision. `table` names the stored resource, e.g. `machines.cluster.x-k8s.io`."""

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
        """Return the labels, decoded once at first use: most entries are never matched against a selector."""
        if self._labels is None:
            self._labels = _decode_labelled(self.value).metadata.labels or _NO_LABELS
        return self._labels

    def fields(self, extract: Callable[[bytes], dict[str, str]]) -> dict[str, str]:
        """Return the selectable fields of a kind, decoded once. A table always uses the same `extract`."""
        if self._fields is None:
            self._fields = extract(self.value)
        return self._fields

    def __repr__(self) -> str:
        return f"Entry({self.table} {self.namespace}/{self.name} @{self.revision})"


class _Unknown:
    """State before an event that was read from disk after a restart and whose predecessor is compacted."""


UNKNOWN = _Unknown()


class StoreEvent:
    """Committed change. `entry` is the new state, or for DELETED the last state at the deleting revision.

    `before` is the replaced state: None for ADDED, UNKNOWN if it was lost with a restart.
    """

    __slots__ = ("before", "entry", "lines", "type")

    def __init__(self, type_: EventType, entry: StoreEntry, before: StoreEntry | _Unknown | None) -> None:
        self.type: EventType = type_
        self.entry = entry
        self.before = before
        self.lines: dict[object, bytes] = {}  # wire encodings by format, created once for all watchers

    @property
    def revision(self) -> Revision:
        return self.entry.revision

    def __repr__(self) -> str:
        return f"Event({self.type} {self.entry!r})"


Listener = Callable[[Sequence[StoreEvent]], None]


class Compacted(ApiServerError):
    """Requested revision that is older than the history, or not part of this history."""

    def __init__(self, asked: int, oldest: int, newest: int | None = None) -> None:
        ahead = newest is not None and asked > newest
        super().__init__(
            f"{'unknown' if ahead else 'too old'} resource version: {asked} ({newest if ahead else oldest})"
        )
        self.asked = asked
        self.oldest = oldest


class WriteConflict(ApiServerError):
    """Conflict: the entry was changed, created or deleted since the caller read it. Read `latest` and decide again."""


class StorageFailed(StatusError):
    """Write that could not be made durable (disk full, I/O error). No part of it is visible."""

    def __init__(self, why: str) -> None:
        super().__init__(
            500, "InternalError", f"Internal error occurred: {why}", details={"causes": [{"message": why}]}
        )
        self.why = why


class DiskFull(StorageFailed):
    """Write that does not fit on the disk; deletes may still fit."""


class Damage(NamedTuple):
    """Damaged object: its row on disk does not match its checksum."""

    table: str
    namespace: str
    name: str
    revision: int
    row: int  # row number in the database

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.table, self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.table} {self.namespace}/{self.name}" if self.namespace else f"{self.table} {self.name}"


class ObjectsDamaged(StatusError):
    """Request for an object that is damaged on disk, or for a list with such an object.

    Upstream answers the same way for objects that it cannot read from etcd: never 404, which would mean that the object
    was deleted.
    """

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
    """Watcher that fell so far behind that its buffer was dropped; it must start over from a list."""


class StoreUnusable(ApiServerError):
    """Store that cannot be opened; the message is for the user who started the server."""


class StoreLocked(StoreUnusable):
    """Data directory that another process uses."""


class StoreCorrupt(StoreUnusable):
    """Database that is damaged or was not created by this program."""


class StoreTooNew(StoreUnusable):
    """Database that was written by a newer version of the program."""
