"""Delete: immediate, graceful, or step by step while finalizers are pending.

Orphan and foreground deletion are ordinary finalizers, which the garbage collector in `upkeep` handles. The answer is
the object while it still exists, and a Status once it is deleted (for some built-in kinds: the object).
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec

from remuda.apiserver.registry.admission import AdmissionChain
from remuda.apiserver.registry.calls import Call, DeleteOptions, ListOptions, Page, WriteOptions, Written
from remuda.apiserver.registry.objects import encode, encode_at, metadata, to_storage
from remuda.apiserver.registry.reads import ResourceReader
from remuda.apiserver.registry.selection import Selection
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.storage.protocol import Store
from remuda.apiserver.storage.types import StoreEntry, WriteConflict
from remuda.kube import clock
from remuda.kube.errors import conflict, forbidden_request, ignore_not_found, not_found

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"

_ATTEMPTS = 8
_IMMORTAL_NAMESPACES = ("default", "kube-system", "kube-public")  # as upstream's NamespaceLifecycle plugin


class Deleter:
    def __init__(self, store: Store, reader: ResourceReader, admission: AdmissionChain) -> None:
        self._store = store
        self._reader = reader
        self._admission = admission

    async def delete(self, call: Call, options: DeleteOptions) -> Written:
        resource = call.resource
        if resource.table == "namespaces" and call.name in _IMMORTAL_NAMESPACES:
            raise forbidden_request("", "namespaces", call.name, "this namespace may not be deleted")
        for _ in range(_ATTEMPTS):
            entry = self._store.latest(resource.table, call.namespace, call.name)
            if entry is None:
                raise not_found(resource.group, resource.plural, call.name)
            try:
                return await self._delete_once(call, entry, options)
            except WriteConflict:
                continue
        raise conflict(resource.group, resource.plural, call.name)

    async def _delete_once(self, call: Call, entry: StoreEntry, options: DeleteOptions) -> Written:
        resource = call.resource
        obj = self._reader.object(resource, entry)
        _check_preconditions(resource, obj, options)
        await self._admission.admit(call, "DELETE", None, obj, WriteOptions(dry_run=options.dry_run))
        before = self._reader.object(resource, entry)
        if metadata(obj).get("deletionTimestamp") and resource.behaviour.is_held(obj):
            return await self._unchanged(resource, entry)  # already being deleted: answer with the object unchanged
        graceful = _grace(resource, obj, options)
        if graceful == "pending":
            return await self._unchanged(resource, entry)
        meta = metadata(obj)
        _set_finalizers(meta, _finalizers(resource, meta.get("finalizers", []), options))
        held = self._prepare(resource, obj, graceful is None)
        if held or graceful:
            return await self._store_marked(call, entry, obj, before, options)
        if options.dry_run:
            return self._gone(resource, obj, encode(obj))
        stored = to_storage(resource, obj)
        gone = await self._store.delete(
            resource.table, entry.namespace, entry.name, lambda revision: encode_at(stored, revision), expect=entry
        )
        return self._gone(resource, obj, self._reader.render(resource, gone))

    async def _unchanged(self, resource: Resource, entry: StoreEntry) -> Written:
        await self._store.settle(entry.revision)
        return Written(self._reader.render(resource, entry))

    def _prepare(self, resource: Resource, obj: Obj, is_final: bool) -> bool:
        """Mark an object whose deletion must wait, and return whether it must. A kind may set the time itself
        (namespaces).
        """
        meta = metadata(obj)
        before = meta.get("deletionTimestamp")
        if is_final:
            resource.behaviour.prepare_delete(obj)
        held = is_held(resource, obj)
        if held and is_final and (before or not meta.get("deletionTimestamp")):
            _mark_deleting(meta)
        return held

    async def _store_marked(
        self, call: Call, entry: StoreEntry, obj: Obj, before: Obj, options: DeleteOptions
    ) -> Written:
        if obj == before:
            return await self._unchanged(call.resource, entry)
        if options.dry_run:
            return Written(encode(obj))
        stored = to_storage(call.resource, obj)
        written = await self._store.put(
            entry.table, entry.namespace, entry.name, lambda revision: encode_at(stored, revision), expect=entry
        )
        return Written(self._reader.render(call.resource, written))

    def _gone(self, resource: Resource, obj: Obj, value: bytes) -> Written:
        if resource.returns_deleted:
            return Written(value)
        details = {"name": metadata(obj)["name"], "kind": resource.plural, "uid": metadata(obj)["uid"]}
        if resource.group:
            details["group"] = resource.group
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return Written(msgspec.json.encode(status))

    async def delete_collection(self, call: Call, selection: ListOptions, options: DeleteOptions) -> Page:
        """Delete all objects that exist now. Concurrent deletions by others are no error."""
        resource = call.resource
        chosen = Selection(resource, call.namespace, selection.label_selector, selection.field_selector)
        entries = [e for e in self._store.scan(resource.table, call.namespace) if chosen.matches(e)]
        if selection.limit:
            entries = entries[: selection.limit]
        revision = self._store.revision
        shown = [self._reader.render(resource, entry) for entry in entries]
        deleting = asyncio.Semaphore(64)  # enough for a group commit, and a limit for collections of any size

        async def delete_one(entry: StoreEntry) -> None:
            one = Call(call.user, "delete", resource, entry.namespace, entry.name)
            async with deleting:
                with ignore_not_found():
                    await self.delete(one, options)

        # All deletes end before an error is raised: otherwise the rest would go on after the answer.
        results = await asyncio.gather(*(delete_one(e) for e in entries), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        await self._store.settle()  # others may have deleted some of them, which is not on disk yet
        return Page(shown, revision)


def is_held(resource: Resource, obj: Obj) -> bool:
    """Return whether finalizers or the kind's own rules still prevent the removal of the object."""
    return bool(metadata(obj).get("finalizers")) or resource.behaviour.is_held(obj)


def _check_preconditions(resource: Resource, obj: Obj, options: DeleteOptions) -> None:
    meta = metadata(obj)
    uid, version = options.precondition_uid, options.precondition_resource_version
    if uid is not None and uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource.group, resource.kind, meta["name"], why)
    if version is not None and version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            f"({meta['resourceVersion']}). The object might have been modified"
        )
        raise conflict(resource.group, resource.kind, meta["name"], why)


def _grace(resource: Resource, obj: Obj, options: DeleteOptions) -> str | int | None:
    """Return None: delete now; "pending": already being deleted; a number: delete after so many seconds (may be 0)."""
    decide = resource.behaviour.graceful_seconds
    if decide is None:
        return None
    meta = metadata(obj)
    asked = options.grace_period_seconds
    if asked is not None and asked < 0:
        # As upstream: a negative grace period means the shortest one, not none.
        asked = 1
    if meta.get("deletionTimestamp"):
        running = meta.get("deletionGracePeriodSeconds") or 0
        if running == 0:
            return None
        # A second delete can shorten the grace period, never prolong it.
        if asked is None or asked >= running:
            return "pending"
        started = datetime.fromisoformat(meta["deletionTimestamp"]) - timedelta(seconds=running)
        end = max(started + timedelta(seconds=asked), datetime.now(UTC))
        meta["deletionTimestamp"] = clock.rfc3339(end.timestamp())
        meta["deletionGracePeriodSeconds"] = asked
        return asked
    seconds = decide(obj, asked)
    if seconds is None:
        return None
    meta["deletionTimestamp"] = clock.rfc3339((datetime.now(UTC) + timedelta(seconds=seconds)).timestamp())
    meta["deletionGracePeriodSeconds"] = seconds
    if meta.get("generation"):
        meta["generation"] += 1
    return seconds


def _finalizers(resource: Resource, present: list[str], options: DeleteOptions) -> list[str]:
    """Add or remove the garbage collector's finalizers according to the propagation policy."""
    if not resource.collects_garbage:
        return present
    policy = options.propagation_policy or _policy_of(present) or resource.default_propagation
    wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(policy)
    kept = [f for f in present if f not in (ORPHAN, FOREGROUND)]
    return [*kept, wanted] if wanted and wanted not in present else (present if wanted else kept)


def _policy_of(finalizers: list[str]) -> str:
    for finalizer in finalizers:
        if finalizer == ORPHAN:
            return "Orphan"
        if finalizer == FOREGROUND:
            return "Foreground"
    return ""


def _set_finalizers(meta: Obj, finalizers: list[str]) -> None:
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)


def _mark_deleting(meta: Obj) -> None:
    now = clock.now()
    if not meta.get("deletionTimestamp"):
        if meta.get("generation"):
            meta["generation"] += 1
        meta["deletionTimestamp"] = now
    elif meta["deletionTimestamp"] > now:
        meta["deletionTimestamp"] = now
    meta["deletionGracePeriodSeconds"] = 0
