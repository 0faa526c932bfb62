"""In-process client: the semantics of the HTTP API, without HTTP, TLS or copies of read objects.

Like HTTP requests, its calls start at the registry's authorization, as one given user. Reads return the stored bytes.
Objects passed to writes are copied, because the registry changes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import msgspec

from remuda.apiserver.auth.user import User
from remuda.apiserver.registry.calls import (
    Call,
    DeleteOptions,
    ListOptions,
    Watch,
    WatchLine,
    WatchOptions,
    WriteOptions,
)
from remuda.apiserver.registry.registry import Registry
from remuda.kube.client import Change, Listing, PatchKind, Propagation, Target
from remuda.kube.errors import no_such_path, status_error

# Handler of non-resource paths: returns the code and the body.
ReadPath = Callable[[User, str], tuple[int, bytes]]


class LocalClient:
    """Implements `remuda.kube.client.Client` on a registry in this process."""

    def __init__(
        self, registry: Registry, user: User, *, field_manager: str, read_path: ReadPath | None = None
    ) -> None:
        self._registry = registry
        self._read_path = read_path
        self._user = user
        self._field_manager = field_manager

    def _call(
        self,
        verb: str,
        target: Target,
        namespace: str,
        name: str = "",
        subresource: str = "",
        *,
        field_selector: str = "",
    ) -> Call:
        resource = self._registry.resources.find(target.group, target.version, target.plural)
        if resource is None:
            self._registry.resources.require_readable(target.group, target.plural)
            raise no_such_path()
        return self._registry.authorize(
            self._user, verb, resource, namespace, name, subresource, field_selector=field_selector
        )

    def _options(self, field_manager: str, dry_run: bool, force: bool = False) -> WriteOptions:
        return WriteOptions(field_manager=field_manager or self._field_manager, dry_run=dry_run, force=force)

    async def get(self, target: Target, namespace: str, name: str, *, subresource: str = "") -> bytes:
        return self._registry.get(self._call("get", target, namespace, name, subresource))

    async def list(
        self,
        target: Target,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
        metadata_only: bool = False,
    ) -> Listing:
        page = self._registry.list(
            self._call("list", target, namespace, field_selector=field_selector),
            ListOptions(
                label_selector=label_selector,
                field_selector=field_selector,
                limit=limit,
                continue_token=continue_token,
                resource_version=resource_version,
            ),
        )
        return Listing(page.items, str(page.revision), page.continue_token)

    async def watch(
        self,
        target: Target,
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        send_initial_events: bool = False,
        metadata_only: bool = False,
        timeout_seconds: float = 0,
    ) -> AsyncGenerator[Change, None]:
        initial = send_initial_events or resource_version in ("", "0")  # as over HTTP
        options = WatchOptions(
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            resource_version_match="NotOlderThan" if initial else "",
            bookmarks=True,
            send_initial_events=True if initial else None,
        )
        watch = self._registry.watch(self._call("watch", target, namespace, field_selector=field_selector), options)
        deadline = asyncio.get_running_loop().time() + timeout_seconds if timeout_seconds else None
        try:
            while lines := await _next_batch(watch, deadline):
                for line in lines:
                    if line.type == "ERROR":
                        raise status_error(0, line.value)
                    yield Change(line.type, line.value)
        finally:
            watch.close()

    async def create(
        self,
        target: Target,
        namespace: str,
        obj: dict[str, Any],
        *,
        name: str = "",
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> bytes:
        call = self._call("create", target, namespace, name, subresource)
        return (await self._registry.create(call, _copy(obj), self._options(field_manager, dry_run))).value

    async def update(
        self,
        target: Target,
        namespace: str,
        name: str,
        obj: dict[str, Any],
        *,
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> bytes:
        call = self._call("update", target, namespace, name, subresource)
        return (await self._registry.update(call, _copy(obj), self._options(field_manager, dry_run))).value

    async def patch(
        self,
        target: Target,
        namespace: str,
        name: str,
        patch: Any,
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> bytes:
        call = self._call("patch", target, namespace, name, subresource)
        options = self._options(field_manager, dry_run, force)
        return (await self._registry.patch(call, kind, _copy(patch), options)).value

    async def delete(
        self,
        target: Target,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation = "",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> bytes:
        options = DeleteOptions(
            precondition_uid=uid,
            precondition_resource_version=resource_version,
            propagation_policy=propagation,
            grace_period_seconds=grace_period_seconds,
            dry_run=dry_run,
        )
        return (await self._registry.delete(self._call("delete", target, namespace, name), options)).value

    async def delete_collection(
        self,
        target: Target,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        propagation: Propagation = "",
    ) -> None:
        call = self._call("deletecollection", target, namespace, field_selector=field_selector)
        selection = ListOptions(label_selector=label_selector, field_selector=field_selector)
        await self._registry.delete_collection(call, selection, DeleteOptions(propagation_policy=propagation))

    async def raw_get(self, path: str) -> bytes:
        if self._read_path is None:
            raise no_such_path()
        code, body = self._read_path(self._user, path)
        if code != 200:
            raise status_error(code, body)
        return body

    async def close(self) -> None:
        """Do nothing: callers close their own watches, and the others end with the engine."""


async def _next_batch(watch: Watch, deadline: float | None) -> Sequence[WatchLine]:
    """Return the next lines; none if the watch or its timeout has ended."""
    try:
        async with asyncio.timeout_at(deadline):
            return await watch.next_batch()
    except TimeoutError:
        return ()


def _copy(value: Any) -> Any:
    """Return a private copy; a JSON round trip is several times faster than copy.deepcopy."""
    return msgspec.json.decode(msgspec.json.encode(value))
