"""Isolation of spec and status: writes of the one do not change the other.

With a status subresource, ordinary writes keep the stored status, and writes to /status keep everything but status
(custom resources: also metadata; most built-in kinds let /status change labels and annotations, as nodes do). A write
does not own the fields that it cannot change.
"""

from __future__ import annotations

from functools import cache

from remuda.apiserver.apply.fieldset import LEAF, Fields, fields_at
from remuda.apiserver.resource import Obj, Resource


def forget_status(resource: Resource, new: Obj) -> bool:
    """Reset the status of a new object to its initial one. Return whether the client had sent a status."""
    if new.pop("status", None) is None:
        return False
    if not resource.custom:
        resource.behaviour.default(new)  # adds the empty status of the canonical form
    return True


def keep_other_side(resource: Resource, subresource: str, new: Obj, live: Obj) -> bool:
    """Restore the fields that this write may not change. Return whether it had changed any, except metadata."""
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
    """Restore a field. Return whether it was different."""
    if field not in live:
        return new.pop(field, None) is not None
    changed = field not in new or new[field] != live[field]
    new[field] = live[field]
    return changed


def unchangeable_fields(resource: Resource, subresource: str) -> Fields:
    """Return the fields that a write cannot change and therefore never owns."""
    if subresource == "status":
        return _fields(resource.status_leaves)
    return _fields(("status",)) if resource.has_status else LEAF


@cache
def _fields(paths: tuple[str, ...]) -> Fields:
    return fields_at(*paths)
