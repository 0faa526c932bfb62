"""Client of the controllers: it puts every response into the caches, so a reconcile reads its own writes.

A cache of a part of its resource (a namespace, a label selector) only stores objects of that part.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, Unpack

from remuda.kube.client import (
    Change,
    Client,
    CreateArguments,
    DeleteArguments,
    DeleteCollectionArguments,
    ListArguments,
    Listing,
    PatchArguments,
    Target,
    WatchArguments,
    WriteArguments,
)
from remuda.kube.objects import Key
from remuda.runtime.caches import Caches
from remuda.runtime.informer import decode_head

Written = Callable[[str, Target, str, str, str], None]  # verb, target, namespace, name, subresource


class CachingClient:
    """Implements `kube.client.Client` on another; it calls `written` after each successful write."""

    def __init__(self, client: Client, caches: Caches, written: Written) -> None:
        self._client = client
        self._caches = caches
        self._written = written

    async def get(self, target: Target, namespace: str, name: str, *, subresource: str = "") -> bytes:
        return await self._client.get(target, namespace, name, subresource=subresource)

    async def list(self, target: Target, namespace: str = "", **options: Unpack[ListArguments]) -> Listing:
        return await self._client.list(target, namespace, **options)

    def watch(
        self, target: Target, namespace: str = "", **options: Unpack[WatchArguments]
    ) -> AsyncGenerator[Change, None]:
        return self._client.watch(target, namespace, **options)

    async def create(
        self, target: Target, namespace: str, obj: dict[str, Any], **options: Unpack[CreateArguments]
    ) -> bytes:
        value = await self._client.create(target, namespace, obj, **options)
        name = options.get("name") or obj.get("metadata", {}).get("name") or decode_head(value).metadata.name
        return self._done("create", target, namespace, name, value, options)

    async def update(
        self, target: Target, namespace: str, name: str, obj: dict[str, Any], **options: Unpack[WriteArguments]
    ) -> bytes:
        value = await self._client.update(target, namespace, name, obj, **options)
        return self._done("update", target, namespace, name, value, options)

    async def patch(
        self, target: Target, namespace: str, name: str, patch: Any, **options: Unpack[PatchArguments]
    ) -> bytes:
        value = await self._client.patch(target, namespace, name, patch, **options)
        return self._done("patch", target, namespace, name, value, options)

    async def delete(self, target: Target, namespace: str, name: str, **options: Unpack[DeleteArguments]) -> bytes:
        value = await self._client.delete(target, namespace, name, **options)
        if not options.get("dry_run"):
            self._written("delete", target, namespace, name, "")
            self._caches.deleted(target, Key(namespace, name), value)
        return value

    async def delete_collection(
        self, target: Target, namespace: str = "", **options: Unpack[DeleteCollectionArguments]
    ) -> None:
        await self._client.delete_collection(target, namespace, **options)
        # The response names no objects, so the caches learn of these deletions from the watch.
        self._written("deletecollection", target, namespace, "", "")

    async def raw_get(self, path: str) -> bytes:
        return await self._client.raw_get(path)

    async def close(self) -> None:
        await self._client.close()

    def _done(
        self, verb: str, target: Target, namespace: str, name: str, value: bytes, options: WriteArguments
    ) -> bytes:
        subresource = options.get("subresource", "")
        if not options.get("dry_run"):
            self._written(verb, target, namespace, name, subresource)
            # Other subresources answer with objects of other kinds, such as Scale, TokenRequest or a Status.
            if subresource in ("", "status"):
                self._caches.observe(target, value)
        return value
