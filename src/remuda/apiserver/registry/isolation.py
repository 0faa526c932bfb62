"""Spec and status are written by different people: each kind of write leaves the other side alone.

With a status subresource, ordinary writes keep the stored status, and writes to /status keep everything but status
(custom resources: metadata too; built-in kinds let /status change labels and annotations, as nodes do).
"""

from __future__ import annotations

from remuda.apiserver.resource import Obj, Resource


def forget_status(resource: Resource, new: Obj) -> None:
    """A new object has no status but the one its kind starts with."""
    if new.pop("status", None) is not None and not resource.custom:
        resource.behaviour.default(new)  # puts the empty status of the normal form back


def keep_other_side(resource: Resource, subresource: str, new: Obj, live: Obj) -> None:
    if subresource == "status":
        _keep_all_but_status(resource, new, live)
    elif resource.has_status:
        _keep(new, live, "status")


def _keep_all_but_status(resource: Resource, new: Obj, live: Obj) -> None:
    for field in {*new, *live} - {"metadata", "status", "apiVersion", "kind"}:
        _keep(new, live, field)
    if resource.custom:
        managed = new["metadata"].get("managedFields")
        new["metadata"] = dict(live["metadata"])
        if managed is not None:
            new["metadata"]["managedFields"] = managed


def _keep(new: Obj, live: Obj, field: str) -> None:
    if field in live:
        new[field] = live[field]
    else:
        new.pop(field, None)
