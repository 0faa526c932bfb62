"""Spec and status are written by different people: each kind of write leaves the other side alone.

With a status subresource, ordinary writes keep the stored status, and writes to /status keep everything but status
(custom resources: metadata too; most built-in kinds let /status change labels and annotations, as nodes do). What a
write cannot change it does not own either.
"""

from __future__ import annotations

from functools import cache

from remuda.apiserver.apply.fieldset import LEAF, Fields, fields_at
from remuda.apiserver.resource import Obj, Resource


def forget_status(resource: Resource, new: Obj) -> bool:
    """A new object has no status but the one its kind starts with. Tells whether one was sent."""
    if new.pop("status", None) is None:
        return False
    if not resource.custom:
        resource.behaviour.default(new)  # puts the empty status of the normal form back
    return True


def keep_other_side(resource: Resource, subresource: str, new: Obj, live: Obj) -> bool:
    """Takes back what this write may not change. Tells whether it had changed any of it, metadata aside."""
    if subresource == "status":
        return _keep_all_but_status(resource, new, live)
    return resource.has_status and _keep(new, live, "status")


def _keep_all_but_status(resource: Resource, new: Obj, live: Obj) -> bool:
    fields = {*new, *live} - {"metadata", "status", "apiVersion", "kind"}
    changed = [field for field in fields if _keep(new, live, field)]
    _keep_metadata(resource, new, live)
    return bool(changed)


def _keep_metadata(resource: Resource, new: Obj, live: Obj) -> None:
    if "metadata" in resource.status_leaves:
        managed = new["metadata"].get("managedFields")
        new["metadata"] = dict(live["metadata"])
        if managed is not None:
            new["metadata"]["managedFields"] = managed
        return
    for path in resource.status_leaves:
        parent, _, field = path.partition(".")
        if parent == "metadata" and field:
            _keep(new["metadata"], live["metadata"], field)


def _keep(new: Obj, live: Obj, field: str) -> bool:
    """Tells whether it was another."""
    if field not in live:
        return new.pop(field, None) is not None
    changed = field not in new or new[field] != live[field]
    new[field] = live[field]
    return changed


def unchangeable_fields(resource: Resource, subresource: str) -> Fields:
    """The fields a write cannot change and therefore never owns."""
    if subresource == "status":
        return _fields(resource.status_leaves)
    return _fields(("status",)) if resource.has_status else LEAF


@cache
def _fields(paths: tuple[str, ...]) -> Fields:
    return fields_at(*paths)
