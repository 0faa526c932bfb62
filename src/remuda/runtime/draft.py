"""Draft: one object as read, a private copy to change, and the difference as patches.

Changes are made on raw JSON, so unknown fields stay unchanged, and absent, null and zero stay distinct. A patch carries
the resourceVersion that was read: if the object has changed since, the server answers with a conflict, and the
reconcile runs again on the current object.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from remuda.kube.client import Client, Target
from remuda.kube.objects import Key, OwnerReference
from remuda.kube.patches import create_merge_patch
from remuda.runtime.steps import Step

Json = dict[str, Any]


class Draft:
    """Object as read, with changes. Use it for one `save` only."""

    def __init__(self, target: Target, value: bytes) -> None:
        self.target = target
        self.value = value
        self.obj: Json = _decode(value)
        metadata = self.obj["metadata"]
        self.key = Key(metadata.get("namespace", ""), metadata["name"])
        self.resource_version: str = metadata["resourceVersion"]
        self.deleting = bool(metadata.get("deletionTimestamp"))

    @cached_property
    def base(self) -> Json:
        """Return the object as read."""
        return _decode(self.value)

    @property
    def metadata(self) -> Json:
        return self._part("metadata")

    @property
    def spec(self) -> Json:
        return self._part("spec")

    @property
    def status(self) -> Json:
        return self._part("status")

    def _part(self, name: str) -> Json:
        part = self.obj.get(name)
        if part is None:
            part = self.obj[name] = {}
        return part

    def add_finalizer(self, name: str) -> bool:
        """Add a finalizer; return whether it was missing."""
        finalizers = self.metadata.setdefault("finalizers", [])
        if name in finalizers:
            return False
        finalizers.append(name)
        return True

    def remove_finalizer(self, name: str) -> bool:
        """Remove a finalizer; return whether it was present."""
        finalizers = self.metadata.get("finalizers", [])
        if name not in finalizers:
            return False
        self.metadata["finalizers"] = [kept for kept in finalizers if kept != name]
        return True

    def set_owner(self, owner: OwnerReference) -> None:
        """Add the owner reference, or update the one with the same uid; the order of the others stays."""
        entry = msgspec.to_builtins(owner)
        owners = self.metadata.setdefault("ownerReferences", [])
        for place, present in enumerate(owners):
            if present.get("uid") == owner.uid:
                owners[place] = entry
                return
        owners.append(entry)

    def remove_owner(self, uid: str) -> bool:
        owners = self.metadata.get("ownerReferences", [])
        kept = [owner for owner in owners if owner.get("uid") != uid]
        if len(kept) == len(owners):
            return False
        self.metadata["ownerReferences"] = kept
        return True

    def set_label(self, key: str, value: str | None) -> None:
        """Set a label; None removes it."""
        self._set("labels", key, value)

    def set_annotation(self, key: str, value: str | None) -> None:
        self._set("annotations", key, value)

    def _set(self, part: str, key: str, value: str | None) -> None:
        if value is not None:
            self.metadata.setdefault(part, {})[key] = value
        elif key in self.metadata.get(part, {}):
            del self.metadata[part][key]

    def patches(self) -> tuple[Json, Json]:
        """Return the merge patches for everything but status, and for status; empty where nothing has changed."""
        if _encode(self.obj) == self.value:  # the usual case, and much cheaper to detect this way
            return {}, {}
        # The properties create a missing part when it is only read. An empty one is no change.
        for part in ("spec", "status"):
            if not self.obj.get(part) and part not in self.base:
                self.obj.pop(part, None)
        patch = create_merge_patch(self.base, self.obj)
        status = patch.pop("status", None)
        return patch, {} if status is None else {"status": status}


async def save(client: Client, draft: Draft, step: Step) -> bytes:
    """Write the changes as one named step, and return the current object.

    Without changes there is no step and no request, and the result is the draft's own value. Removing the last
    finalizer deletes an object that is being deleted, so its status is then not written.
    """
    patch, status = draft.patches()
    if not patch and not status:
        return draft.value
    async with step:
        return await _write(client, draft, patch, status)


async def _write(client: Client, draft: Draft, patch: Json, status: Json) -> bytes:
    value = draft.value
    if patch:
        value = await _send(client, draft, patch, draft.resource_version, "")
        if draft.deleting and not draft.metadata.get("finalizers"):
            return value
    if status:
        # The first patch has changed the resourceVersion: with the draft's own one, this patch would always conflict.
        value = await _send(client, draft, status, _resource_version(value), "status")
    return value


async def _send(client: Client, draft: Draft, patch: Json, resource_version: str, subresource: str) -> bytes:
    patch.setdefault("metadata", {})["resourceVersion"] = resource_version
    return await client.patch(draft.target, *draft.key, patch, subresource=subresource)


_encode = msgspec.json.Encoder().encode


def _decode(value: bytes) -> Json:
    """Decode an object without managedFields, which only the server writes and which are half of many objects."""
    obj: Json = msgspec.json.decode(value)
    obj["metadata"].pop("managedFields", None)
    return obj


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct):
    metadata: _Version


def _resource_version(value: bytes) -> str:
    return msgspec.json.decode(value, type=_Versioned).metadata.resource_version
