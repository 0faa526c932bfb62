"""Caches of one client: an informer per resource, each filled and updated by a reflector.

The client of the controllers passes every response to `observe` and `deleted`, so a reconcile reads its own writes even
before the watch reports them. A resource may be cached in parts, one per label selector, if the readers of the parts
have nothing in common.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from remuda.kube.client import Client, Target
from remuda.kube.objects import Key, Kind, Object
from remuda.kube.selectors import parse_label_selector
from remuda.runtime.informer import IndexFunction, Informer, Transform, decode_object
from remuda.runtime.outcome import Retryable
from remuda.runtime.reflector import Reflector
from remuda.runtime.tasks import Tasks, ended

__all__ = ["Caches", "IndexFunction", "Informer", "Transform"]

T = TypeVar("T", bound=Object)

_FIRST_LIST_SECONDS = 15.0


class Caches:
    """Shared caches of resources. `start` fills those declared before it; later ones are filled at once."""

    def __init__(self, client: Client, *, namespace: str = "") -> None:
        self._client = client
        self._namespace = namespace
        self._parts: dict[Target, dict[str, _Part]] = {}  # by label selector; "" is the whole resource
        self._tasks = Tasks()
        self._running: dict[Reflector, asyncio.Task[Any]] = {}
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
        """Return the cache of a kind, or of the part of it that a selector asks for; the first caller decides what it
        holds of each object. If the whole resource is cached, it serves the part too. Raise ValueError without a
        selector if only parts exist: the caller would otherwise read one of them, depending on the order of
        declaration.
        """
        present = self._present(kind.target, label_selector)
        if present is not None:
            return present.informer
        if not label_selector and (parts := self._parts.get(kind.target)):
            named = ", ".join(map(repr, parts))
            raise ValueError(f"{kind.target.plural} are cached in parts: use one of the label selectors {named}")
        within = (namespace or self._namespace) if kind.namespaced else ""
        selector = parse_label_selector(label_selector) if label_selector else None
        informer = Informer(kind.decode, kind.target, transform=transform, namespace=within, selector=selector)
        self._add(informer, namespace=within, label_selector=label_selector, metadata_only=metadata_only)
        return informer

    def index(self, kind: Kind[T], name: str, function: IndexFunction[T]) -> None:
        self.of(kind).index(name, function)

    async def ensure(self, target: Target) -> Informer[Any]:
        """Return the filled cache of a whole resource that was not declared before. Raise Retryable while it cannot be
        listed.
        """
        part = self._present(target)
        if part is None:
            part = self._add(Informer(decode_object, target, namespace=self._namespace), namespace=self._namespace)
        if not part.informer.synced.is_set():
            await _first_list(target, part)
        return part.informer

    def known(self, target: Target) -> Informer[Any] | None:
        """Return the cache of a whole resource, filled or not; None where there is none."""
        part = self._present(target)
        return None if part is None else part.informer

    def whole(self, target: Target) -> Informer[Any] | None:
        """Return the cache of every object of a resource; None if there is none, or only parts."""
        part = self._parts.get(target, _NOTHING).get("")
        return None if part is None or not part.informer.synced.is_set() else part.informer

    def _present(self, target: Target, label_selector: str = "") -> _Part | None:
        parts = self._parts.get(target, _NOTHING)
        return parts.get("") or parts.get(label_selector)

    def _each(self) -> Iterator[tuple[Target, _Part]]:
        for target, parts in list(self._parts.items()):
            for part in list(parts.values()):
                yield target, part

    def _add(
        self, informer: Informer[Any], *, namespace: str, label_selector: str = "", metadata_only: bool = False
    ) -> _Part:
        reflector = Reflector(
            self._client,
            informer.target,
            informer,
            namespace=namespace,
            label_selector=label_selector,
            metadata_only=metadata_only,
        )
        part = _Part(informer, reflector)
        self._parts.setdefault(informer.target, {})[label_selector] = part
        if self._started:
            self._begin(part)
        return part

    def _begin(self, part: _Part) -> None:
        plural = part.informer.target.plural
        self._running[part.reflector] = self._tasks.spawn(f"watch {plural}", part.reflector.run())

    async def forget(self, target: Target) -> None:
        """Stop watching a resource whose kind was deleted. A later user of the cache starts a new one."""
        for part in self._parts.pop(target, _NOTHING).values():
            task = self._running.pop(part.reflector, None)
            if task is not None:
                await ended(task)

    def observe(self, target: Target, value: bytes) -> None:
        """Put the response to a write into the caches of its resource, if there are any."""
        for part in self._parts.get(target, _NOTHING).values():
            part.informer.observe(value)

    def deleted(self, target: Target, key: Key, answer: bytes) -> None:
        """Put the response to a delete into the caches. It is the object while finalizers delay the deletion; else it
        is a Status or the last state of the object."""
        parts = self._parts.get(target)
        if not parts:
            return
        read = _decode_answer(answer)
        for part in parts.values():
            if read.kind == "Status":
                part.informer.bury(key, read.details.uid)
            elif read.metadata.deletion_timestamp is None:
                part.informer.bury(key, read.metadata.uid)
            else:
                part.informer.observe(answer)

    async def start(self) -> None:
        """Start all caches; return when every cache declared so far has its first list."""
        self._started = True
        declared = list(self._each())
        for _, part in declared:
            self._begin(part)
        await asyncio.gather(*(part.informer.synced.wait() for _, part in declared))

    @property
    def errors(self) -> dict[Target, Exception]:
        """Return the errors that keep caches from being up to date now."""
        found: dict[Target, Exception] = {}
        for target, part in self._each():
            unreadable = next(iter(part.informer.unreadable.values()), None)
            error = part.reflector.error or unreadable
            if error is not None:
                found[target] = error
        return found

    @property
    def unreadable(self) -> dict[Target, str]:
        """Return the caches whose watch cannot be decoded, with the reason. Lists update them, some seconds late."""
        return {target: part.reflector.unreadable for target, part in self._each() if part.reflector.unreadable}

    @property
    def missing(self) -> dict[Target, str]:
        """Return the caches that were never filled, with the reason."""
        return {
            target: str(part.reflector.error or "not listed yet")
            for target, part in self._each()
            if not part.informer.synced.is_set()
        }

    async def close(self) -> None:
        await self._tasks.close()


class _Part(NamedTuple):
    """Informer, and the reflector that fills it."""

    informer: Informer[Any]
    reflector: Reflector


_NOTHING: Mapping[str, _Part] = {}


async def _first_list(target: Target, part: _Part) -> None:
    try:
        async with asyncio.timeout(_FIRST_LIST_SECONDS):
            await part.reflector.attempted.wait()
    except TimeoutError:
        raise Retryable(f"cannot list {target.plural} of {target.api_version}: timed out") from None
    if not part.informer.synced.is_set():
        raise Retryable(f"cannot list {target.plural} of {target.api_version}: {part.reflector.error}")


class _Answer(msgspec.Struct):
    class Metadata(msgspec.Struct, rename="camel"):
        uid: str = ""
        deletion_timestamp: str | None = None

    class Details(msgspec.Struct):
        uid: str = ""

    kind: str = ""
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    details: Details = msgspec.field(default_factory=Details)


_decode_answer = msgspec.json.Decoder(_Answer).decode
