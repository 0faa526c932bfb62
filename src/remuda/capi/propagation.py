"""Labels and annotations handed down from one object to another, and taken away again when they go from the first.

Whoever hands metadata down must not touch what others put on the object, so it has to know what it put there itself.
The API server keeps exactly that, per field manager, in managedFields; nothing else is stored. A change is one merge
patch of the keys that differ, and none is sent when nothing does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from remuda.kube.client import Client
from remuda.runtime.draft import Draft

Json = dict[str, Any]

# Field managers, named as other implementations of Cluster API name them: objects they made are taken over as they are.
BY_DEPLOYMENT = "capi-machinedeployment"
BY_SET = "capi-machineset"
BY_SET_METADATA = "capi-machineset-metadata"


def hand_down(
    draft: Draft,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    managers: Collection[str],
    *,
    keep: Collection[str] = (),
) -> None:
    """Sets them on the draft, and removes what these managers had set and is neither given nor to be kept."""
    for part, given in (("labels", labels), ("annotations", annotations)):
        for key in owned(draft.base, part, managers) - given.keys() - set(keep):
            _drop(draft, part, key)
        if given:
            draft.metadata.setdefault(part, {}).update(given)


def owned(obj: Json, part: str, managers: Collection[str]) -> set[str]:
    """The keys of labels or annotations that these managers set last."""
    found: set[str] = set()
    for entry in obj["metadata"].get("managedFields") or ():
        if entry.get("manager") in managers and not entry.get("subresource"):
            fields = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
            found.update(key[2:] for key in fields.get(f"f:{part}") or () if key.startswith("f:"))
    return found


def _drop(draft: Draft, part: str, key: str) -> None:
    draft.metadata.get(part, {}).pop(key, None)


async def send(client: Client, draft: Draft, manager: str) -> bytes:
    """Writes what has changed outside status, under the name of the manager."""
    patch, _ = draft.patches()
    patch.setdefault("metadata", {})["resourceVersion"] = draft.resource_version
    return await client.patch(draft.target, *draft.key, patch, field_manager=manager)
