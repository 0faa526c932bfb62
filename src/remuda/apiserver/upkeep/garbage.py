"""The garbage collector: objects go when the last of their owners is gone.

An index from an owner's uid to its dependents is kept from committed events; only objects with owner references are
ever decoded. Three things bring a key here: its owners changed, one of its owners is gone, or it is itself being
deleted and waits for its dependents (foreground) or for their release (orphan).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from remuda.apiserver.registry.calls import DeleteOptions
from remuda.apiserver.registry.deletes import FOREGROUND, ORPHAN
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.resource import Obj
from remuda.apiserver.storage.types import Entry, Event
from remuda.apiserver.upkeep.duty import KeyedDuty, modify
from remuda.kube.errors import StatusError

Key = tuple[str, str, str]  # table, namespace, name


class _Owned(msgspec.Struct):
    uid: str = ""
    owner_references: list[dict[str, Any]] = msgspec.field(default_factory=list, name="ownerReferences")
    deletion: str | None = msgspec.field(default=None, name="deletionTimestamp")
    finalizers: list[str] = []


class _OwnedObject(msgspec.Struct):
    metadata: _Owned


_decode_owned = msgspec.json.Decoder(_OwnedObject).decode


class GarbageDuty(KeyedDuty):
    def __init__(self, registry: Registry) -> None:
        super().__init__("garbage", registry, self._reconcile)
        self._dependents: dict[str, set[Key]] = {}
        self._owners: dict[Key, frozenset[str]] = {}
        self._ending: dict[str, Key] = {}  # uid -> object that waits for its dependents

    async def start(self) -> None:
        async for entry in self.registry.store.scan_all():
            self._index(entry)

    def observe(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == "DELETED":
                self._forget(event.entry)
            else:
                self._index(event.entry)

    # -- the index ---------------------------------------------------------------------------------------------

    def _index(self, entry: Entry) -> None:
        key = (entry.table, entry.namespace, entry.name)
        has_owners = b'"ownerReferences"' in entry.value
        if not has_owners and b'"deletionTimestamp"' not in entry.value and key not in self._owners:
            return
        meta = _decode_owned(entry.value).metadata
        owners = frozenset(ref.get("uid", "") for ref in meta.owner_references)
        before = self._owners.get(key, frozenset())
        if owners != before:
            self._link(key, before, owners)
            if owners:
                self.worker.add(key)
            self._wake(before)
        if meta.deletion and (ORPHAN in meta.finalizers or FOREGROUND in meta.finalizers):
            self._ending[meta.uid] = key
            self.worker.add(key)

    def _forget(self, entry: Entry) -> None:
        key = (entry.table, entry.namespace, entry.name)
        uid = _decode_owned(entry.value).metadata.uid
        owners = self._owners.get(key, frozenset())
        self._link(key, owners, frozenset())
        self._ending.pop(uid, None)
        for dependent in self._dependents.get(uid, ()):
            self.worker.add(dependent)
        self._wake(owners)

    def _link(self, key: Key, before: frozenset[str], after: frozenset[str]) -> None:
        for uid in before - after:
            dependents = self._dependents.get(uid)
            if dependents is not None:
                dependents.discard(key)
                if not dependents:
                    del self._dependents[uid]
        for uid in after - before:
            self._dependents.setdefault(uid, set()).add(key)
        if after:
            self._owners[key] = after
        else:
            self._owners.pop(key, None)

    def _wake(self, owners: frozenset[str]) -> None:
        """An owner that waits for its dependents has one fewer to wait for."""
        for uid in owners:
            if uid in self._ending:
                self.worker.add(self._ending[uid])

    # -- decisions ---------------------------------------------------------------------------------------------

    async def _reconcile(self, key: Key) -> None:
        obj = self.registry.read(*key)
        if obj is None:
            return
        meta = obj["metadata"]
        if meta.get("deletionTimestamp"):
            finalizers = meta.get("finalizers", [])
            if ORPHAN in finalizers:
                await self._orphan(key, meta["uid"])
            elif FOREGROUND in finalizers:
                await self._delete_dependents(key, meta["uid"])
        elif meta.get("ownerReferences"):
            await self._check_owners(key, meta)

    async def _orphan(self, key: Key, uid: str) -> None:
        for dependent in list(self._dependents.get(uid, ())):
            await self._drop_references(dependent, {uid})
        await self._drop_finalizer(key, ORPHAN)

    async def _delete_dependents(self, key: Key, uid: str) -> None:
        blocked = False
        for dependent in list(self._dependents.get(uid, ())):
            self.worker.add(dependent)
            obj = self.registry.read(*dependent)
            if obj is not None:
                blocked |= any(
                    ref.get("uid") == uid and ref.get("blockOwnerDeletion")
                    for ref in obj["metadata"]["ownerReferences"]
                )
        if not blocked:
            await self._drop_finalizer(key, FOREGROUND)

    async def _check_owners(self, key: Key, meta: Obj) -> None:
        states = {ref.get("uid", ""): self._owner_state(key, ref) for ref in meta["ownerReferences"]}
        gone = {uid for uid, state in states.items() if state == "gone"}
        ending = {uid for uid, state in states.items() if state == "ending"}
        if len(gone) + len(ending) < len(states):
            if gone or ending:
                await self._drop_references(key, gone | ending)
        elif ending and self._dependents.get(meta["uid"]):
            await self._delete(key, meta, "Foreground")
        else:
            await self._delete(key, meta, "")

    def _owner_state(self, key: Key, ref: dict[str, Any]) -> Literal["there", "gone", "ending"]:
        group, _, _ = str(ref.get("apiVersion", "")).rpartition("/")
        resource = self.registry.resources.of_kind(group, str(ref.get("kind", "")))
        if resource is None or (resource.namespaced and not key[1]):
            return "there"  # a kind we cannot look up: never delete on a guess
        namespace = key[1] if resource.namespaced else ""
        owner = self.registry.read(resource.table, namespace, str(ref.get("name", "")))
        if owner is None or owner["metadata"]["uid"] != ref.get("uid"):
            return "gone"
        meta = owner["metadata"]
        return "ending" if meta.get("deletionTimestamp") and FOREGROUND in meta.get("finalizers", []) else "there"

    # -- effects -----------------------------------------------------------------------------------------------

    async def _delete(self, key: Key, meta: Obj, policy: Literal["", "Foreground"]) -> None:
        resource = self.registry.resources.of_table(key[0])
        if resource is None:
            return
        options = DeleteOptions(propagation_policy=policy or _own_policy(meta), precondition_uid=meta["uid"])
        try:
            await self.registry.delete(self.registry.system_call("delete", resource, key[1], key[2]), options)
        except StatusError as error:
            if error.code != 404:
                raise

    async def _drop_references(self, key: Key, uids: set[str]) -> None:
        def change(live: Obj) -> Obj:
            metadata = dict(live["metadata"])
            kept = [ref for ref in metadata.get("ownerReferences", []) if ref.get("uid") not in uids]
            _set_or_drop(metadata, "ownerReferences", kept)
            return {**live, "metadata": metadata}

        await self._modify(key, change)

    async def _drop_finalizer(self, key: Key, finalizer: str) -> None:
        def change(live: Obj) -> Obj:
            metadata = dict(live["metadata"])
            _set_or_drop(metadata, "finalizers", [f for f in metadata.get("finalizers", []) if f != finalizer])
            return {**live, "metadata": metadata}

        await self._modify(key, change)

    async def _modify(self, key: Key, change: Any) -> None:
        try:
            await modify(self.registry, *key, change)
        except StatusError as error:
            if error.code != 404:
                raise


def _own_policy(meta: Obj) -> Literal["Orphan", "Background", "Foreground"]:
    """The policy an object already asks for by its finalizers, else background."""
    finalizers = meta.get("finalizers", [])
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"


def _set_or_drop(metadata: Obj, field: str, values: list[Any]) -> None:
    if values:
        metadata[field] = values
    else:
        metadata.pop(field, None)
