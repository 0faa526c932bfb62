"""Garbage collector: deletes objects when the last of their owners is deleted.

It processes an object when the object gets an owner, when an owner is deleted or waits for it, or when the object
itself is being deleted and waits for its dependents (foreground) or for their release (orphan). It decides nothing
before the index is complete, and never guesses: an owner whose kind is not served counts as existing until its deletion
is seen. While an object is damaged on disk the index is incomplete, and nothing is collected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from remuda.apiserver.registry.calls import DeleteOptions
from remuda.apiserver.registry.crds import TABLE as DEFINITIONS
from remuda.apiserver.registry.deletes import FOREGROUND, ORPHAN
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.resource import Obj
from remuda.apiserver.storage.types import StoreEvent
from remuda.apiserver.upkeep.duty import CONTROLLERS, KeyedDuty, delete, modify
from remuda.apiserver.upkeep.ownership import Key, Ownership
from remuda.kube.errors import ignore_not_found

log = logging.getLogger(__name__)

_AT_ONCE = 64  # writes that share a commit
OwnerState = Literal["there", "gone", "ending", "unknown"]
Policy = Literal["Orphan", "Background", "Foreground"]


class GarbageDuty(KeyedDuty):
    def __init__(self, registry: Registry) -> None:
        super().__init__("garbage", registry, self._reconcile)
        self._ownership = Ownership()
        self._puzzling: set[Key] = set()  # dependents of owners whose kind is not served
        self.worker.hold()

    async def start(self) -> None:
        """Build the ownership index from a scan of the store, then release the worker.

        The scan may return an entry older than an event seen meanwhile, so the index takes the entry stored now.
        While objects are damaged on disk, the worker stays on hold and no garbage is collected.
        """
        async for entry in self.registry.store.scan_all():
            current = self.registry.store.get(entry.table, entry.namespace, entry.name)
            if current is not None:
                self._look_at(self._ownership.see(current))
        if self.registry.store.damaged:
            log.warning("garbage collection is suspended while objects are damaged on disk")
        else:
            self.worker.release()

    def observe(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            gone = event.type == "DELETED"
            self._look_at(self._ownership.forget(event.entry) if gone else self._ownership.see(event.entry))
            if event.entry.table == DEFINITIONS and self._puzzling:
                self._look_at(self._puzzling)
                self._puzzling = set()

    def _look_at(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.worker.add(key)

    # -- decisions ---------------------------------------------------------------------------------------------

    async def _reconcile(self, key: Key) -> None:
        obj = self.registry.read(*key)
        if obj is None:
            return
        meta = obj["metadata"]
        if meta.get("deletionTimestamp"):
            finalizers = meta.get("finalizers") or []
            if ORPHAN in finalizers:
                await self._orphan(key, meta["uid"])
            elif FOREGROUND in finalizers and not self._ownership.blockers(meta["uid"], key):
                await self._drop_finalizer(key, FOREGROUND)
        elif meta.get("ownerReferences"):
            await self._check_owners(key, meta)

    async def _orphan(self, key: Key, uid: str) -> None:
        dependents = self._ownership.dependents(uid)
        for start in range(0, len(dependents), _AT_ONCE):
            chunk = dependents[start : start + _AT_ONCE]
            await asyncio.gather(*(self._drop_owners(dependent, {uid}) for dependent in chunk))
        # The finalizer is removed last: if the owner were deleted first, its dependents would be collected. A crash in
        # between repeats the release.
        await self._drop_finalizer(key, ORPHAN)

    async def _check_owners(self, key: Key, meta: Obj) -> None:
        states = {ref.get("uid", ""): self._owner_state(key, ref) for ref in meta["ownerReferences"]}
        if "unknown" in states.values():
            return
        lost = {uid for uid, state in states.items() if state != "there"}
        if len(lost) < len(states):
            if lost:
                await self._drop_owners(key, lost)
        elif "ending" not in states.values() or not self._ownership.dependents(meta["uid"]):
            await self._delete(key, meta, _own_policy(meta))
        elif self._ownership.closes_circle(meta["uid"]) and any(map(_blocks, meta["ownerReferences"])):
            # Objects that own each other would otherwise wait for each other forever.
            await self._unblock_owners(key)
            self.worker.add(key)
        else:
            await self._delete(key, meta, "Foreground")

    def _owner_state(self, key: Key, ref: dict[str, Any]) -> OwnerState:
        # Checked first, because the kind of a deleted owner may no longer be served.
        if self._ownership.is_gone(ref.get("uid", "")):
            return "gone"
        group, _, _ = str(ref.get("apiVersion", "")).rpartition("/")
        resource = self.registry.resources.of_kind(group, str(ref.get("kind", "")))
        if resource is None:
            self._puzzling.add(key)
            return "unknown"
        if resource.namespaced and not key[1]:
            return "unknown"  # a cluster-scoped object's reference cannot name the namespace
        owner = self.registry.read(resource.table, key[1] if resource.namespaced else "", str(ref.get("name", "")))
        # An object of the same name with another uid is a new one, and not the owner.
        if owner is None or owner["metadata"]["uid"] != ref.get("uid"):
            return "gone"
        meta = owner["metadata"]
        return "ending" if meta.get("deletionTimestamp") and FOREGROUND in (meta.get("finalizers") or ()) else "there"

    # -- actions -----------------------------------------------------------------------------------------------

    async def _delete(self, key: Key, meta: Obj, policy: Policy) -> None:
        """Delete the object as it was read: if it got another owner meanwhile, it is processed again."""
        resource = self.registry.resources.of_table(key[0])
        if resource is None:
            return
        options = DeleteOptions(
            propagation_policy=policy,
            precondition_uid=meta["uid"],
            precondition_resource_version=meta["resourceVersion"],
        )
        await delete(self.registry, resource, key[1], key[2], options)

    async def _drop_owners(self, key: Key, uids: set[str]) -> None:
        await self._change(
            key, "ownerReferences", lambda references: [ref for ref in references if ref.get("uid") not in uids]
        )

    async def _unblock_owners(self, key: Key) -> None:
        await self._change(key, "ownerReferences", lambda references: [_unblocked(ref) for ref in references])

    async def _drop_finalizer(self, key: Key, finalizer: str) -> None:
        await self._change(key, "finalizers", lambda finalizers: [f for f in finalizers if f != finalizer])

    async def _change(self, key: Key, field: str, change: Callable[[list[Any]], list[Any]]) -> None:
        """Change one list of an object's metadata; ignore a deleted object."""

        def changed(live: Obj) -> Obj:
            metadata = dict(live["metadata"])
            metadata[field] = change(metadata.get(field) or [])
            if not metadata[field]:
                del metadata[field]
            return {**live, "metadata": metadata}

        with ignore_not_found():
            await modify(self.registry, *key, changed, manager=CONTROLLERS)


def _own_policy(meta: Obj) -> Policy:
    """Return the propagation policy that the object's finalizers request, else background."""
    finalizers = meta.get("finalizers") or []
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"


def _blocks(ref: dict[str, Any]) -> bool:
    return bool(ref.get("blockOwnerDeletion"))


def _unblocked(ref: dict[str, Any]) -> dict[str, Any]:
    return {**ref, "blockOwnerDeletion": False} if _blocks(ref) else ref
