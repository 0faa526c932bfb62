"""Server-side apply of desired objects with our own field manager; nothing is sent if nothing differs.

Apply has the semantics needed here: fields of other managers (the core's, an autoscaler's, a user's) stay, and a field
that is no longer desired is removed, because the server knows who owned it. A digest of the last applied content is
stored on the object: as long as it is the same, and every desired field has its desired value, nothing is sent. Changes
by others to desired fields are reverted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.kube.client import Client, Target
from remuda.kube.objects import OwnerReference
from remuda.kube.patches import copy_json
from remuda.runtime.steps import Step

Json = dict[str, Any]

FIELD_MANAGER = "remuda-provisioning"
APPLIED = "remuda.dev/applied"  # annotation: what was applied last; only objects of ours have it

_SETS = ("ownerReferences", "finalizers")  # lists of metadata that others add to
_encode = msgspec.json.Encoder(order="deterministic").encode


def prepared(obj: Mapping[str, Any], owners: Sequence[OwnerReference] = (), *, free: Sequence[str] = ()) -> Json:
    """Return the object to apply. `free`: fields of spec whose change alone does not cause an apply."""
    wanted: Json = copy_json(dict(obj))
    spec = wanted.get("spec", {})
    judged = {**wanted, "spec": {key: value for key, value in spec.items() if key not in free}} if free else wanted
    digest = hashlib.sha256(_encode(judged)).hexdigest()[:16]
    metadata = wanted["metadata"]
    metadata.setdefault("annotations", {})[APPLIED] = digest
    if owners:
        metadata["ownerReferences"] = [msgspec.to_builtins(owner) for owner in owners]
    return wanted


def is_applied(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether the object already has its desired state."""
    return _covers(present, wanted)


async def apply(client: Client, target: Target, namespace: str, present: bytes | None, wanted: Json, by: Step) -> bytes:
    """Apply the object if it differs, and return its current state."""
    before = {} if present is None else msgspec.json.decode(present)
    if present is not None and is_applied(before, wanted):
        return present
    first, emptied = _without_emptied(before, wanted)
    if emptied:
        async with by:
            await _send(client, target, namespace, first)
    async with by:
        return await _send(client, target, namespace, wanted)


async def _send(client: Client, target: Target, namespace: str, obj: Json) -> bytes:
    name = obj["metadata"]["name"]
    # The declaration decides about every field that it has, so a conflict with another field manager is no error.
    return await client.patch(target, namespace, name, obj, kind="apply", field_manager=FIELD_MANAGER, force=True)


def _without_emptied(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Json, bool]:
    """Return the desired object without the maps that are to become empty, and whether there are any. If an apply
    removes the last field of a map, kube-apiserver makes the map null, then rejects it: remove such a map first."""
    kept: Json = {}
    emptied = False
    for name, value in wanted.items():
        there = present.get(name)
        if not isinstance(value, dict) or not isinstance(there, Mapping):
            kept[name] = value
        elif not value and there:
            emptied = True
        else:
            kept[name], below = _without_emptied(there, value)
            emptied = emptied or below
    return kept, emptied


def _covers(present: Any, wanted: Any) -> bool:
    """Return whether `present` has every wanted field and value; additional fields are ignored, null equals absent."""
    if isinstance(wanted, Mapping):
        if not isinstance(present, Mapping):
            return not wanted and present is None
        return all(_covers_field(name, present.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(present, list)
            and len(present) == len(wanted)
            and all(_covers(one, other) for one, other in zip(present, wanted, strict=True))
        )
    # For Python 1 equals True; for JSON it does not.
    return bool(present == wanted) and isinstance(present, bool) == isinstance(wanted, bool)


def _covers_field(name: str, present: Any, wanted: Any) -> bool:
    if name in _SETS and isinstance(present, list) and isinstance(wanted, list):
        return all(any(_covers(one, each) for one in present) for each in wanted)
    return (wanted == [] and present is None) or _covers(present, wanted)
