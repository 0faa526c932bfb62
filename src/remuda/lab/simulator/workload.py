"""In-memory API of a workload cluster, as its managers see it; thousands fit into one process.

It is a `kube.client.Client` that stores any objects: Nodes, and Pods or volumes if a test creates them. Revisions grow,
writes based on an older revision conflict, watches report every change. Other features of a real server (validation,
defaults, controllers) are not modelled; use `simulator.served` where they matter. An unreachable cluster (`cut`) or one
without quorum (`frozen`) answers as a real one would.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, Unpack

import msgspec

from remuda.kube import clock, errors, random_source
from remuda.kube.client import (
    Change,
    ChangeType,
    CreateArguments,
    DeleteArguments,
    Listing,
    PatchArguments,
    Propagation,
    Target,
    WriteArguments,
)
from remuda.kube.objects import Key
from remuda.kube.patches import apply_json_patch, apply_merge_patch, apply_strategic_patch
from remuda.kube.selectors import FieldSelector, parse_field_selector, parse_label_selector

Json = dict[str, Any]

_KINDS = {"nodes": "Node", "pods": "Pod", "namespaces": "Namespace", "volumeattachments": "VolumeAttachment"}
_REMEMBERED = 32  # changes that a watch can resume from; one that is further behind must list again
_VERSION = b'{"major":"1","minor":"36","gitVersion":"v1.36.0+simulated"}'

_decode: Callable[[bytes], Json] = msgspec.json.Decoder(Json).decode
_encode = msgspec.json.Encoder().encode


class _Event:
    __slots__ = ("change", "key", "revision", "table")

    def __init__(self, revision: int, table: str, key: Key, change: Change) -> None:
        self.revision = revision
        self.table = table
        self.key = key
        self.change = change


class _Watcher:
    __slots__ = ("events", "wake")

    def __init__(self) -> None:
        self.events: deque[_Event] = deque()
        self.wake: asyncio.Future[None] | None = None

    def tell(self, event: _Event | None) -> None:
        if event is not None:
            self.events.append(event)
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)

    async def wait(self, deadline: float | None) -> bool:
        """Wait for events until the deadline; return whether something may have happened before it."""
        loop = asyncio.get_running_loop()
        self.wake = loop.create_future()
        timer = loop.call_at(deadline, self.tell, None) if deadline is not None else None
        try:
            await self.wake
        finally:
            self.wake = None
            if timer is not None:
                timer.cancel()
        return bool(self.events) or deadline is None or loop.time() < deadline


class ModelWorkload:
    __slots__ = ("_cut", "_history", "_revision", "_tables", "_watchers", "frozen")

    def __init__(self) -> None:
        self._tables: dict[str, dict[Key, bytes]] = {}
        self._revision = 1
        self._history: deque[_Event] = deque(maxlen=_REMEMBERED)
        self._watchers: dict[_Watcher, None] = {}
        self._cut = False
        self.frozen: Callable[[], str] | None = None  # returns why writes are refused; empty: they are not

    @property
    def cut(self) -> bool:
        return self._cut

    @cut.setter
    def cut(self, value: bool) -> None:
        self._cut = value
        if value:
            for watcher in self._watchers:
                watcher.tell(None)

    # reading

    async def get(self, target: Target, namespace: str, name: str, *, subresource: str = "") -> bytes:
        self._reach()
        return self._find(target, namespace, name)

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
        self._reach()
        matches = _selection(namespace, label_selector, field_selector)
        table = self._tables.get(_table(target), {})
        items = [value for key, value in sorted(table.items()) if matches(key, value)]
        return Listing(items, str(self._revision))

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
        self._reach()
        table, matches = _table(target), _selection(namespace, label_selector, field_selector)
        watcher = _Watcher()
        if resource_version:
            watcher.events.extend(self._since(int(resource_version)))
        else:
            watcher.events.extend(self._present(table))
        deadline = asyncio.get_running_loop().time() + timeout_seconds if timeout_seconds else None
        self._watchers[watcher] = None
        try:
            while True:
                while watcher.events:
                    event = watcher.events.popleft()
                    if event.table == table and matches(event.key, event.change.value):
                        yield event.change
                if not await watcher.wait(deadline):
                    return
                self._reach()
        finally:
            del self._watchers[watcher]

    def _since(self, revision: int) -> Sequence[_Event]:
        missed = [event for event in self._history if event.revision > revision]
        if len(missed) < self._revision - revision:
            raise errors.gone(f"too old resource version: {revision} ({self._revision})")
        return missed

    def _present(self, table: str) -> Sequence[_Event]:
        objects = sorted(self._tables.get(table, {}).items())
        return [_Event(self._revision, table, key, Change("ADDED", value)) for key, value in objects]

    async def raw_get(self, path: str) -> bytes:
        self._reach()
        if path == "/readyz":  # as an API server does, which includes etcd in the check
            self._write_allowed()
        return _VERSION if path == "/version" else b'{"paths":["/api/v1"]}' if path == "/" else b"ok"

    async def close(self) -> None:
        """Do nothing: clients hold no resources."""

    # writing

    async def create(self, target: Target, namespace: str, obj: Json, **options: Unpack[CreateArguments]) -> bytes:
        self._write_allowed()
        if options.get("subresource") == "eviction":
            return await self.delete(target, namespace, options["name"])
        made = _decode(_encode(obj))
        metadata = made.setdefault("metadata", {})
        key = Key(namespace, metadata["name"])
        if key in self._tables.get(_table(target), {}):
            raise errors.already_exists(target.group, target.plural, key.name)
        if namespace:
            metadata["namespace"] = namespace
        metadata |= {"uid": random_source.uid(), "creationTimestamp": clock.now()}
        head = {"apiVersion": target.api_version, "kind": made.get("kind") or _KINDS.get(target.plural, "Object")}
        return self._put("ADDED", target, key, head | made)

    async def update(
        self, target: Target, namespace: str, name: str, obj: Json, **options: Unpack[WriteArguments]
    ) -> bytes:
        return self._modify(target, Key(namespace, name), lambda present: _decode(_encode(obj)))

    async def patch(
        self, target: Target, namespace: str, name: str, patch: Any, **options: Unpack[PatchArguments]
    ) -> bytes:
        kind = options.get("kind", "merge")

        def patched(present: Json) -> Json:
            if kind == "json":
                return apply_json_patch(present, patch)
            if kind == "strategic":
                return apply_strategic_patch(present, patch, None)
            return apply_merge_patch(present, patch)

        return self._modify(target, Key(namespace, name), patched)

    def _modify(self, target: Target, key: Key, change: Callable[[Json], Json]) -> bytes:
        self._write_allowed()
        value = self._find(target, *key)
        present = _decode(value)
        changed = change(present)
        wanted = changed.get("metadata", {}).get("resourceVersion")
        if wanted and wanted != present["metadata"]["resourceVersion"]:
            raise errors.conflict(target.group, target.plural, key.name)
        if changed == present:
            return value
        return self._put("MODIFIED", target, key, changed)

    async def delete(self, target: Target, namespace: str, name: str, **options: Unpack[DeleteArguments]) -> bytes:
        uid, resource_version = options.get("uid"), options.get("resource_version")
        self._write_allowed()
        obj = _decode(self._find(target, namespace, name))
        metadata = obj["metadata"]
        if uid not in (None, metadata["uid"]) or resource_version not in (None, metadata["resourceVersion"]):
            raise errors.conflict(target.group, target.plural, name)
        value = self._put("DELETED", target, Key(namespace, name), obj)
        del self._tables[_table(target)][Key(namespace, name)]
        return value

    async def delete_collection(
        self,
        target: Target,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        propagation: Propagation = "",
    ) -> None:
        matches = _selection(namespace, label_selector, field_selector)
        doomed = [key for key, value in self._tables.get(_table(target), {}).items() if matches(key, value)]
        for key in doomed:
            await self.delete(target, *key)

    def _put(self, type: ChangeType, target: Target, key: Key, obj: Json) -> bytes:
        self._revision += 1
        obj["metadata"]["resourceVersion"] = str(self._revision)
        value = _encode(obj)
        table = _table(target)
        self._tables.setdefault(table, {})[key] = value
        event = _Event(self._revision, table, key, Change(type, value))
        self._history.append(event)
        for watcher in self._watchers:
            watcher.tell(event)
        return value

    def _find(self, target: Target, namespace: str, name: str) -> bytes:
        value = self._tables.get(_table(target), {}).get(Key(namespace, name))
        if value is None:
            raise errors.not_found(target.group, target.plural, name)
        return value

    def _reach(self) -> None:
        if self._cut:
            raise errors.Unreachable("the simulated cluster cannot be reached", sent=False)

    def _write_allowed(self) -> None:
        self._reach()
        if self.frozen is not None and (why := self.frozen()):
            raise errors.service_unavailable(f"etcdserver: {why}")


def _table(target: Target) -> str:
    return f"{target.plural}.{target.group}"


def _selection(namespace: str, labels: str, fields: str) -> Callable[[Key, bytes], bool]:
    label_selector, field_selector = parse_label_selector(labels), parse_field_selector(fields)

    def matches(key: Key, value: bytes) -> bool:
        if namespace and key.namespace != namespace:
            return False
        if label_selector.empty and field_selector.empty:
            return True
        obj = _decode(value)
        if not label_selector.matches(obj["metadata"].get("labels") or {}):
            return False
        return field_selector.matches(_fields(obj, field_selector))

    return matches


def _fields(obj: Json, selector: FieldSelector) -> dict[str, str]:
    return {
        requirement.field: _at(obj, requirement.field.removeprefix(".").split("."))
        for requirement in selector.requirements
    }


def _at(value: Any, path: Iterable[str]) -> str:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None else str(value)
