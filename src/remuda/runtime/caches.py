"""Caches: every object of a kind as bytes, with indexes, kept true by a watch and ahead of it by our own writes.

Reads are from memory and see this process's writes at once: the answer to a write is put in right away
(`Caches.observe`), and the watch, which brings it again, cannot take it back, because resourceVersions of one server
are comparable numbers. Listeners are told of every change exactly once, in order, with the typed object before and
after. Only bytes are kept; whoever reads gets a struct decoded for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from remuda.kube.client import Change, Client, Target
from remuda.kube.objects import Key, Kind, Object
from remuda.runtime.outcome import Retryable
from remuda.runtime.reflector import Reflector
from remuda.runtime.tasks import Tasks

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
IndexFunction = Callable[[T], Iterable[str]]
Transform = Callable[[bytes], bytes]

_FIRST_LIST_SECONDS = 15.0


class _Entry:
    __slots__ = ("indexed", "revision", "value")

    def __init__(self, value: bytes, revision: int, indexed: tuple[tuple[str, tuple[str, ...]], ...]) -> None:
        self.value = value
        self.revision = revision
        self.indexed = indexed


class Informer(Generic[T]):
    """What is known of one resource. `initial` in a listener's call: this is from a list, nothing has just happened."""

    def __init__(self, decode: Callable[[bytes], T], target: Target, *, transform: Transform | None = None) -> None:
        self._decode = decode
        self.target = target
        self._transform = transform
        self._entries: dict[Key, _Entry] = {}
        self._index_functions: dict[str, IndexFunction[T]] = {}
        self._indexes: dict[str, dict[str, set[Key]]] = {}
        self._listeners: list[Callable[[T | None, T | None, bool], None]] = []
        self._revision = 0  # how far the watch has come
        self.synced = asyncio.Event()

    def index(self, name: str, function: IndexFunction[T]) -> None:
        if name in self._index_functions:
            return
        if self._entries:
            raise RuntimeError(f"the index {name} of {self.target.plural} must be declared before its cache is filled")
        self._index_functions[name] = function
        self._indexes[name] = {}

    def listen(self, listener: Callable[[T | None, T | None, bool], None]) -> None:
        """Calls it with (before, after, initial) for every change from now on, and for what is there already."""
        self._listeners.append(listener)
        for entry in list(self._entries.values()):
            listener(None, self._decode(entry.value), True)

    # reading

    def get(self, namespace: str, name: str) -> T | None:
        entry = self._entries.get(Key(namespace, name))
        return None if entry is None else self._decode(entry.value)

    def raw(self, namespace: str, name: str) -> bytes | None:
        entry = self._entries.get(Key(namespace, name))
        return None if entry is None else entry.value

    def select(self, index: str, value: str) -> list[T]:
        """The objects an index has under a value, by name."""
        return [self._decode(self._entries[key].value) for key in sorted(self._indexes[index].get(value, ()))]

    def keys(self, index: str, value: str) -> list[Key]:
        return sorted(self._indexes[index].get(value, ()))

    def all(self, namespace: str = "") -> list[T]:
        keys = [key for key in self._entries if not namespace or key.namespace == namespace]
        return [self._decode(self._entries[key].value) for key in sorted(keys)]

    def __len__(self) -> int:
        return len(self._entries)

    # being told

    def replace(self, items: list[bytes], revision: int) -> None:
        """Everything there is at `revision`. What is missing has been deleted, unless it was written later."""
        seen = set()
        for item in items:
            seen.add(self._put(item, initial=True))
        for key, entry in list(self._entries.items()):
            if key not in seen and entry.revision <= revision:
                self._drop(key)
        self._revision = max(self._revision, revision)
        self.synced.set()

    def change(self, change: Change) -> int:
        head = _head(change.value)
        if change.type == "DELETED":
            entry = self._entries.get(head.key)
            if entry is not None and entry.revision <= head.revision:
                self._drop(head.key)
        elif change.type != "BOOKMARK":
            self._put(change.value, initial=False)
        self._revision = max(self._revision, head.revision)
        return head.revision

    def observe(self, value: bytes) -> None:
        """The answer to one of our own writes."""
        head = _head(value)
        if head.key not in self._entries and head.revision <= self._revision:
            return  # the watch is past it and the object is gone
        self._put(value, initial=False)

    def _put(self, value: bytes, *, initial: bool) -> Key:
        head = _head(value)
        key = head.key
        present = self._entries.get(key)
        if present is not None and head.revision <= present.revision:
            return key
        if self._transform is not None:
            value = self._transform(value)
        after = self._decode(value)
        indexed = tuple((name, tuple(function(after))) for name, function in self._index_functions.items())
        self._reindex(key, present.indexed if present else (), indexed)
        self._entries[key] = _Entry(value, head.revision, indexed)
        if self._listeners:
            self._tell(self._decode(present.value) if present else None, after, initial)
        return key

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key)
        self._reindex(key, entry.indexed, ())
        if self._listeners:
            self._tell(self._decode(entry.value), None, False)

    def _reindex(
        self, key: Key, before: tuple[tuple[str, tuple[str, ...]], ...], after: tuple[tuple[str, tuple[str, ...]], ...]
    ) -> None:
        if before == after:
            return
        for name, values in before:
            index = self._indexes[name]
            for value in values:
                keys = index[value]
                keys.discard(key)
                if not keys:
                    del index[value]
        for name, values in after:
            for value in values:
                self._indexes[name].setdefault(value, set()).add(key)

    def _tell(self, before: T | None, after: T | None, initial: bool) -> None:
        for listener in self._listeners:
            try:
                listener(before, after, initial)
            except Exception:
                log.exception("a listener of %s failed", self.target.plural)


class _Head(msgspec.Struct):
    class Metadata(msgspec.Struct, rename="camel"):
        name: str = ""
        namespace: str = ""
        resource_version: str = "0"

    metadata: Metadata

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def revision(self) -> int:
        return int(self.metadata.resource_version)


_head: Callable[[bytes], _Head] = msgspec.json.Decoder(_Head).decode
_decode_object: Callable[[bytes], Object] = msgspec.json.Decoder(Object).decode


class Caches:
    """All informers of one client. Those declared before `start` are filled by it; later ones at once."""

    def __init__(self, client: Client, *, namespace: str = "") -> None:
        self._client = client
        self._namespace = namespace
        self._informers: dict[Target, Informer[Any]] = {}
        self._reflectors: dict[Target, Reflector] = {}
        self._tasks = Tasks()
        self._started = False

    def of(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        metadata_only: bool = False,
        transform: Transform | None = None,
    ) -> Informer[T]:
        """The cache of a kind; the first caller decides what it holds."""
        present = self._informers.get(kind.target)
        if present is not None:
            return present
        informer = Informer(kind.decode, kind.target, transform=transform)
        self._add(
            informer,
            namespace=(namespace or self._namespace) if kind.namespaced else "",
            label_selector=label_selector,
            metadata_only=metadata_only,
        )
        return informer

    def index(self, kind: Kind[T], name: str, function: IndexFunction[T]) -> None:
        self.of(kind).index(name, function)

    async def ensure(self, target: Target) -> Informer[Any]:
        """The cache of a resource known only now, filled. Raises Retryable while it cannot be listed."""
        informer = self._informers.get(target)
        if informer is None:
            informer = Informer(_decode_object, target)
            self._add(informer, namespace=self._namespace)
        if not informer.synced.is_set():
            await self._first_list(target, informer)
        return informer

    async def _first_list(self, target: Target, informer: Informer[Any]) -> None:
        reflector = self._reflectors[target]
        try:
            async with asyncio.timeout(_FIRST_LIST_SECONDS):
                await reflector.attempted.wait()
        except TimeoutError:
            raise Retryable(f"{target.plural} of {target.api_version} could not be listed in time") from None
        if not informer.synced.is_set():
            raise Retryable(f"{target.plural} of {target.api_version} cannot be listed: {reflector.error}")

    def known(self, target: Target) -> Informer[Any] | None:
        return self._informers.get(target)

    def _add(
        self, informer: Informer[Any], *, namespace: str, label_selector: str = "", metadata_only: bool = False
    ) -> None:
        reflector = Reflector(
            self._client,
            informer.target,
            informer,
            namespace=namespace,
            label_selector=label_selector,
            metadata_only=metadata_only,
        )
        self._informers[informer.target] = informer
        self._reflectors[informer.target] = reflector
        if self._started:
            self._tasks.spawn(f"watch {informer.target.plural}", reflector.run())

    def observe(self, target: Target, value: bytes) -> None:
        """Puts the answer to a write into the cache of its resource, if there is one and it is filled."""
        informer = self._informers.get(target)
        if informer is not None and informer.synced.is_set():
            informer.observe(value)

    async def start(self) -> None:
        """Returns when every cache declared so far has its first list."""
        self._started = True
        for target, reflector in self._reflectors.items():
            self._tasks.spawn(f"watch {target.plural}", reflector.run())
        await asyncio.gather(*(informer.synced.wait() for informer in self._informers.values()))

    @property
    def errors(self) -> dict[Target, Exception]:
        """What keeps a cache from being true right now."""
        return {target: r.error for target, r in self._reflectors.items() if r.error is not None}

    async def close(self) -> None:
        await self._tasks.close()
