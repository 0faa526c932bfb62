"""Informer: cache of one resource, updated by a watch and, ahead of it, by our own writes.

It holds every object as bytes, with indexes. Three things stay true whatever order responses and watch events arrive
in:

- the cache never returns an object older than it returned before: resourceVersions of one server are comparable
  numbers;
- our own writes and deletions are visible at once: until the watch has reported a deletion too, neither the deleted
  object nor an older one of the same name is visible again;
- listeners are called for every change exactly once, in order, with the typed object before and after.

The cache stores only bytes, without managedFields, which nothing here reads and which would be half of the size.
Readers get a struct; some of those decoded last are kept, because many readers read an object that has just changed.
Structs are shared and must not be changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

import msgspec

from remuda.kube.client import Change, Target
from remuda.kube.objects import Key, Kind, Object
from remuda.kube.selectors import LabelSelector

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
IndexFunction = Callable[[T], Iterable[str]]
Transform = Callable[[bytes], bytes]
Listener = Callable[[T | None, T | None, bool], None]

_DECODED = 1024  # structs kept per resource

_Indexed = tuple[tuple[str, tuple[str, ...]], ...]  # for one object: index → the values it is found under


class Informer(Generic[T]):
    """Informer of a resource. `namespace` and `selector` limit it to a part; our own writes outside the part are
    ignored.
    """

    def __init__(
        self,
        decode: Callable[[bytes], T],
        target: Target,
        *,
        transform: Transform | None = None,
        namespace: str = "",
        selector: LabelSelector | None = None,
    ) -> None:
        self._decode = lru_cache(maxsize=_DECODED)(decode)
        self.target = target
        self._transform = transform
        self.namespace = namespace
        self._selector = selector
        self._entries: dict[Key, _Entry] = {}
        self._graves: dict[Key, _Entry] = {}  # deleted objects whose deletion the watch has not reported yet
        self._index_functions: dict[str, IndexFunction[T]] = {}
        self._indexes: dict[str, dict[str, set[Key]]] = {}
        self._listeners: list[Listener[T]] = []
        self._revision = 0  # how far the watch has come
        self.unreadable: dict[Key, Exception] = {}
        self.synced = asyncio.Event()

    def index(self, name: str, function: IndexFunction[T]) -> None:
        if name in self._index_functions:
            return
        if self._entries:
            raise RuntimeError(f"the index {name} of {self.target.plural} must be declared before its cache is filled")
        self._index_functions[name] = function
        self._indexes[name] = {}

    def listen(self, listener: Listener[T]) -> None:
        """Call `listener` with (before, after, initial) for every future change, and for each existing object.

        `initial`: the object comes from a list, so it may not be new.
        """
        self._listeners = [*self._listeners, listener]  # a new list: `_tell` may be iterating over the old one
        for entry in list(self._entries.values()):
            self._call(listener, None, self._decode(entry.value), True)

    def unlisten(self, listener: Listener[T]) -> None:
        self._listeners = [one for one in self._listeners if one is not listener]

    # -- reads ---------------------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> T | None:
        entry = self._entries.get(Key(namespace, name))
        return None if entry is None else self._decode(entry.value)

    def raw(self, namespace: str, name: str) -> bytes | None:
        entry = self._entries.get(Key(namespace, name))
        return None if entry is None else entry.value

    def select(self, index: str, value: str) -> list[T]:
        """Return the objects that an index has under a value, by name."""
        return [self._decode(self._entries[key].value) for key in self.keys(index, value)]

    def keys(self, index: str, value: str) -> list[Key]:
        return sorted(self._indexes[index].get(value, ()))

    def all(self, namespace: str = "") -> list[T]:
        keys = [key for key in self._entries if not namespace or key.namespace == namespace]
        return [self._decode(self._entries[key].value) for key in sorted(keys)]

    def __len__(self) -> int:
        return len(self._entries)

    # -- updates by the watch ------------------------------------------------------------------------------------

    def replace(self, items: Sequence[bytes], revision: int) -> None:
        """Replace the content by a list of objects at `revision`. Objects that it lacks are dropped, unless newer."""
        listed: dict[Key, str] = {}
        for item in items:
            head = decode_head(item)
            listed[head.key] = head.metadata.uid
            self._put(head, item, initial=True)
        for key, entry in list(self._entries.items()):
            # An entry newer than the list is one of our own writes, made while the list was on its way.
            if key not in listed and entry.revision <= revision:
                self._drop(key)
        for key in self.unreadable.keys() - listed.keys():
            del self.unreadable[key]
        for key, grave in list(self._graves.items()):
            # The list is newer than the deleted object and no longer has it: no later event can show that object again.
            if grave.revision <= revision and listed.get(key) != grave.uid:
                del self._graves[key]
        self._revision = max(self._revision, revision)
        self.synced.set()

    def change(self, change: Change) -> int:
        """Apply one event of a watch; return its revision."""
        head = decode_head(change.value)
        if change.type == "DELETED":
            self._unbury(head)
            self.unreadable.pop(head.key, None)
            entry = self._entries.get(head.key)
            # A newer entry is a new object of the same name, whose creation is already known from our own write.
            if entry is not None and entry.revision <= head.revision:
                self._drop(head.key)
        elif change.type != "BOOKMARK":
            self._put(head, change.value, initial=False)
        self._revision = max(self._revision, head.revision)
        return head.revision

    # -- updates by our own writes -------------------------------------------------------------------------------

    def observe(self, value: bytes) -> None:
        """Put the response to one of our own writes into the cache."""
        head = decode_head(value)
        if head.ended and self.target.plural != "namespaces":  # a Namespace waits for finalizers in its spec
            self.bury(head.key, head.metadata.uid)
        elif head.key not in self._entries and head.revision <= self._revision:
            return  # the watch has passed this revision, and the object was deleted since
        elif self._holds(head.key, value):
            self._put(head, value, initial=False)

    def bury(self, key: Key, uid: str) -> None:
        """Remove an object that was deleted, and remember it until the watch reports the deletion. An object that is
        not in the cache is not remembered: the watch may have reported its deletion before."""
        entry = self._entries.get(key)
        if entry is not None and entry.uid == uid:
            self._graves[key] = entry
            self._drop(key)

    def _unbury(self, head: Head) -> None:
        grave = self._graves.get(head.key)
        if grave is not None and grave.uid == head.metadata.uid:
            del self._graves[head.key]

    def _is_past(self, head: Head) -> bool:
        """Return whether the object is the deleted one of that name, or not newer than that one's last known state."""
        grave = self._graves.get(head.key)
        return grave is not None and (grave.uid == head.metadata.uid or head.revision <= grave.revision)

    def _holds(self, key: Key, value: bytes) -> bool:
        if self.namespace and key.namespace != self.namespace:
            return False
        return self._selector is None or self._selector.matches(decode_object(value).metadata.labels)

    # -- storage -------------------------------------------------------------------------------------------------

    def _put(self, head: Head, value: bytes, *, initial: bool) -> None:
        key = head.key
        present = self._entries.get(key)
        # The response to our own write and the watch event of it arrive in any order, and both come here.
        if present is not None and head.revision <= present.revision:
            return
        if self._graves and self._is_past(head):
            return
        try:
            value, after, indexed = self._read(value)
        except Exception as error:
            self._skip(key, error)
            return
        self.unreadable.pop(key, None)
        self._reindex(key, present.indexed if present else (), indexed)
        self._entries[key] = _Entry(value, head.revision, head.metadata.uid, indexed)
        if self._listeners:
            self._tell(self._decode(present.value) if present else None, after, initial)

    def _read(self, value: bytes) -> tuple[bytes, T, _Indexed]:
        """Return the parts of an object that the cache stores: its bytes, the decoded struct and the index values."""
        value = without_managed_fields(value) if self._transform is None else self._transform(value)
        after = self._decode(value)
        return value, after, tuple((name, tuple(function(after))) for name, function in self._index_functions.items())

    def _skip(self, key: Key, error: Exception) -> None:
        """Keep the last readable version of an object that cannot be decoded. Dropping it would look like a deletion,
        and controllers would replace it."""
        if key not in self.unreadable:
            log.error("cannot decode %s %s, keeping its last readable version: %s", self.target.plural, key, error)
        self.unreadable[key] = error

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key)
        self._reindex(key, entry.indexed, ())
        if self._listeners:
            self._tell(self._decode(entry.value), None, False)

    def _reindex(self, key: Key, before: _Indexed, after: _Indexed) -> None:
        if before == after:
            return
        for name, values in before:
            index = self._indexes[name]
            for value in set(values):
                keys = index[value]
                keys.discard(key)
                if not keys:
                    del index[value]
        for name, values in after:
            for value in values:
                self._indexes[name].setdefault(value, set()).add(key)

    def _tell(self, before: T | None, after: T | None, initial: bool) -> None:
        for listener in self._listeners:
            self._call(listener, before, after, initial)

    def _call(self, listener: Listener[T], before: T | None, after: T | None, initial: bool) -> None:
        try:
            listener(before, after, initial)
        except Exception:
            log.exception("a listener of %s failed", self.target.plural)


class _Entry:
    __slots__ = ("indexed", "revision", "uid", "value")

    def __init__(self, value: bytes, revision: int, uid: str, indexed: _Indexed) -> None:
        self.value = value
        self.revision = revision
        self.uid = uid
        self.indexed = indexed


class Head(msgspec.Struct):
    """Fields of an object that the cache itself reads."""

    class Metadata(msgspec.Struct, rename="camel"):
        name: str = ""
        namespace: str = ""
        uid: str = ""
        resource_version: str = "0"
        deletion_timestamp: str | None = None
        deletion_grace_period_seconds: int | None = None
        finalizers: list[str] | None = None

    metadata: Metadata

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def revision(self) -> int:
        return int(self.metadata.resource_version)

    @property
    def ended(self) -> bool:
        """Return whether the object is being deleted and has no finalizers left, as in the answer to the write that
        removed the last.
        """
        meta = self.metadata
        return bool(meta.deletion_timestamp and not meta.finalizers and not meta.deletion_grace_period_seconds)


decode_head: Callable[[bytes], Head] = msgspec.json.Decoder(Head).decode
decode_object: Callable[[bytes], Object] = Kind("", "", "", Object).decode


_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def without_managed_fields(value: bytes) -> bytes:
    parts = _decode_parts(value)
    metadata = _decode_parts(parts["metadata"])
    if metadata.pop("managedFields", None) is None:
        return value
    parts["metadata"] = msgspec.Raw(_encode(metadata))
    return _encode(parts)
