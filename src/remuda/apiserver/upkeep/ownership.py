"""Index of owner references: from an owner's uid to its dependents, maintained from committed events.

`see` and `forget` follow the store and return the keys that the garbage collector should process now. Only objects with
owner references, or that are being deleted, are ever decoded, and only their metadata. What must stay true: the index
matches the committed state, so a decision based on it without awaiting is never behind an acknowledged write.
"""

from __future__ import annotations

import msgspec

from remuda.apiserver.registry.deletes import FOREGROUND, ORPHAN
from remuda.apiserver.storage.types import StoreEntry

Key = tuple[str, str, str]  # table, namespace, name
Links = frozenset[tuple[str, bool]]  # uid of an owner, and whether the owner's deletion must wait for this dependent


class _Reference(msgspec.Struct):
    uid: str = ""
    blocks: bool | None = msgspec.field(default=None, name="blockOwnerDeletion")


class _Owned(msgspec.Struct):
    uid: str = ""
    owners: list[_Reference] | None = msgspec.field(default=None, name="ownerReferences")
    deletion: str | None = msgspec.field(default=None, name="deletionTimestamp")
    finalizers: list[str] | None = None


class _OwnedObject(msgspec.Struct):
    metadata: _Owned


_decode_owned = msgspec.json.Decoder(_OwnedObject).decode
_NONE: Links = frozenset()


class Ownership:
    def __init__(self) -> None:
        self._dependents: dict[str, dict[Key, bool]] = {}
        self._links: dict[Key, Links] = {}
        self._waiting: dict[str, Key] = {}  # uid -> object that is being deleted in the foreground
        self._waiting_keys: set[Key] = set()
        self._gone: set[str] = set()  # owners deleted while they had dependents

    def dependents(self, uid: str) -> list[Key]:
        return list(self._dependents.get(uid, ()))

    def blockers(self, uid: str, key: Key) -> bool:
        """Return whether the foreground deletion of an object has to wait for dependents other than itself."""
        return any(blocks and dependent != key for dependent, blocks in self._dependents.get(uid, {}).items())

    def closes_circle(self, uid: str) -> bool:
        """Return whether a dependent of this object itself waits for the deletion of its own dependents."""
        return any(dependent in self._waiting_keys for dependent in self._dependents.get(uid, ()))

    def is_gone(self, uid: str) -> bool:
        """Return whether the owner was seen to be deleted; true also when its kind is no longer served."""
        return uid in self._gone

    def see(self, entry: StoreEntry) -> list[Key]:
        key = (entry.table, entry.namespace, entry.name)
        interesting = b'"ownerReferences"' in entry.value or b'"deletionTimestamp"' in entry.value
        if not interesting and key not in self._links:
            return []
        meta = _decode_owned(entry.value).metadata
        after: Links = frozenset((owner.uid, bool(owner.blocks)) for owner in meta.owners or ())
        before = self._links.get(key, _NONE)
        look = self._waiting_among(before | after)
        if {uid for uid, _ in after} - {uid for uid, _ in before}:
            look.append(key)
        self._link(key, before, after)
        return look + self._see_deletion(key, meta)

    def _see_deletion(self, key: Key, meta: _Owned) -> list[Key]:
        finalizers = (meta.finalizers or ()) if meta.deletion else ()
        if FOREGROUND not in finalizers:
            self._stop_waiting(meta.uid)
            return [key] if ORPHAN in finalizers else []
        if meta.uid in self._waiting:
            return [key]
        self._waiting[meta.uid] = key
        self._waiting_keys.add(key)
        return [key, *self.dependents(meta.uid)]

    def forget(self, entry: StoreEntry) -> list[Key]:
        key = (entry.table, entry.namespace, entry.name)
        uid = _decode_owned(entry.value).metadata.uid
        before = self._links.get(key, _NONE)
        self._link(key, before, _NONE)
        self._stop_waiting(uid)
        if uid in self._dependents:
            # Only owners with dependents are remembered, until the last dependent drops them: the set stays small.
            self._gone.add(uid)
        return self._waiting_among(before) + self.dependents(uid)

    def _stop_waiting(self, uid: str) -> None:
        key = self._waiting.pop(uid, None)
        if key is not None:
            self._waiting_keys.discard(key)

    def _waiting_among(self, links: Links) -> list[Key]:
        """Yield the owners that wait for this dependent, which was deleted or released them."""
        return [self._waiting[uid] for uid in {uid for uid, _ in links} if uid in self._waiting]

    def _link(self, key: Key, before: Links, after: Links) -> None:
        if before == after:
            return
        for uid in {uid for uid, _ in before} - {uid for uid, _ in after}:
            held = self._dependents[uid]
            del held[key]
            if not held:
                del self._dependents[uid]
                self._gone.discard(uid)
        for uid, blocks in sorted(after):  # if two references name the same owner, the blocking one counts
            self._dependents.setdefault(uid, {})[key] = blocks
        if after:
            self._links[key] = after
        else:
            del self._links[key]
