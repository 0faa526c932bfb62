"""Permissions as questions: may a user do something with an object?

Every API server, including the embedded one, answers them by a SubjectAccessReview, so one function serves both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.kube.client import Client, Target

MASTERS = "system:masters"  # the group that may do everything
SUBJECT_ACCESS_REVIEWS = Target("authorization.k8s.io/v1", "subjectaccessreviews")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """User as the API server knows them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class RequiredAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Permission on one object. `field`: the field of a manifest that requires it."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    field: str = ""
    advice: str = ""  # why the permission is needed, and alternatives, for users

    @property
    def right(self) -> tuple[str, str, str, str, str]:
        """Return the permission alone, without the field that requires it."""
        return self.verb, self.group, self.resource, self.namespace, self.name

    @property
    def object(self) -> str:
        """Return the object for messages: `secrets fleet/cloud`, `nodedrivers.management.cattle.io process`."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{resource} {self.namespace}/{self.name}" if self.namespace else f"{resource} {self.name}"


def denial(access: RequiredAccess) -> str:
    """Explain to a user which permission is missing. The text is the same whether or not the object exists."""
    advice = access.advice or "ask an administrator for this right, or refer to an object that you may use"
    where = f"{access.field}: " if access.field else ""
    return f"{where}you need the right to {access.verb} {access.object}; {advice}"


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def permits(client: Client, subject: Subject, access: RequiredAccess) -> bool:
    """Ask the API server. Each call sends a new request, so that a revoked permission is noticed."""
    attributes = {"verb": access.verb, "group": access.group, "resource": access.resource, "name": access.name}
    if access.namespace:
        attributes["namespace"] = access.namespace
    return await _ask(client, subject, {"resourceAttributes": attributes})


async def permits_path(client: Client, subject: Subject, verb: str, path: str) -> bool:
    """Ask the same for a non-resource path."""
    return await _ask(client, subject, {"nonResourceAttributes": {"verb": verb, "path": path}})


async def _ask(client: Client, subject: Subject, attributes: dict[str, Any]) -> bool:
    spec: dict[str, Any] = {"user": subject.name, "groups": list(subject.groups), **attributes}
    if subject.uid:
        spec["uid"] = subject.uid
    if subject.extra:
        spec["extra"] = {key: list(values) for key, values in subject.extra.items()}
    review = {"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": spec}
    answer = await client.create(SUBJECT_ACCESS_REVIEWS, "", review)
    return msgspec.json.decode(answer, type=_Review).status.allowed
