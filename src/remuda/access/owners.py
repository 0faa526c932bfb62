"""Ownership of tokens and grants: each is deleted with its User, and with no other one.

The owner is recorded by its uid: a later User of the same name inherits nothing.
"""

from __future__ import annotations

from remuda.access.types import USER
from remuda.kube.objects import ObjectMeta, OwnerReference


def belongs_to(metadata: ObjectMeta, user: ObjectMeta) -> bool:
    """Return whether an object belongs to a User; also true while it has no owner reference."""
    known = metadata.owner(USER.name, USER.group)
    return known is None or known.uid == user.uid


def owned_by(user: ObjectMeta) -> OwnerReference:
    """Return an owner reference to a User, without `controller`: it only lets the object be deleted with the User."""
    return OwnerReference(api_version=USER.api_version, kind=USER.name, name=user.name, uid=user.uid)
