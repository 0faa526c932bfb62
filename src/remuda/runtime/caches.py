"""All caches of one client: an informer per resource, each filled and kept true by a reflector.

The client that controllers write through hands every answer to `observe` and `deleted`, so a reconcile reads what it
has written, also before the watch has brought it.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec

from remuda.kube.client import Client, Target
from remuda.kube.objects import Key, Kind, Object
from remuda.kube.selectors import parse_label_selector
from remuda.runtime.informer import IndexFunction, Informer, Transform, decode_object
from remuda.runtime.outcome import Retryable
from remuda.runtime.reflector import Reflector
from remuda.runtime.tasks import Tasks

__all__ = ["Caches", "IndexFunction", "Informer", "Transform"]

T = TypeVar("T", bound=Object)

_FIRST_LIST_SECONDS = 15.0


class Caches:
    """Those declared before `start` are filled by it; later ones at once."""

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
        within = (namespace or self._namespace) if kind.namespaced else ""
        selector = parse_label_selector(label_selector) if label_selector else None
        informer = Informer(kind.decode, kind.target, transform=transform, namespace=within, selector=selector)
        self._add(informer, namespace=within, label_selector=label_selector, metadata_only=metadata_only)
        return informer

    def index(self, kind: Kind[T], name: str, function: IndexFunction[T]) -> None:
        self.of(kind).index(name, function)

    async def ensure(self, target: Target) -> Informer[Any]:
        """The cache of a resource known only now, filled. Raises Retryable while it cannot be listed."""
        informer = self._informers.get(target)
        if informer is None:
            informer = Informer(decode_object, target, namespace=self._namespace)
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
        """Puts the answer to a write into the cache of its resource, if there is one."""
        informer = self._informers.get(target)
        if informer is not None:
            informer.observe(value)

    def deleted(self, target: Target, key: Key, answer: bytes) -> None:
        """The answer to a delete is the object while something holds it, and a Status or its last state once it is
        gone."""
        informer = self._informers.get(target)
        if informer is None:
            return
        read = _decode_answer(answer)
        if read.kind == "Status":
            informer.bury(key, read.details.uid)
        elif read.metadata.deletion_timestamp is None:
            informer.bury(key, read.metadata.uid)
        else:
            informer.observe(answer)

    async def start(self) -> None:
        """Returns when every cache declared so far has its first list."""
        self._started = True
        for target, reflector in self._reflectors.items():
            self._tasks.spawn(f"watch {target.plural}", reflector.run())
        await asyncio.gather(*(informer.synced.wait() for informer in self._informers.values()))

    @property
    def errors(self) -> dict[Target, Exception]:
        """What keeps a cache from being true right now."""
        found = {target: next(iter(i.unreadable.values())) for target, i in self._informers.items() if i.unreadable}
        return found | {target: r.error for target, r in self._reflectors.items() if r.error is not None}

    @property
    def missing(self) -> dict[Target, str]:
        """The caches that have never been filled, and why not."""
        return {
            target: str(self._reflectors[target].error or "not listed yet")
            for target, informer in self._informers.items()
            if not informer.synced.is_set()
        }

    async def close(self) -> None:
        await self._tasks.close()


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
