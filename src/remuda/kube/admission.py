"""Admission as pure functions: one per kind, (old, new, user, lookup) → patch, warnings, errors.

The embedded engine calls them in process; on Kubernetes the same functions are served as webhooks. A function must not
keep state, must not write, and must answer the same for the same review.

A registration may also have `needs`: the permissions that the author of a write must have for each object that the
write newly refers to. The engine checks them for that user, before it calls the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from remuda.kube import KubeError
from remuda.kube.authorization import RequiredAccess, Subject
from remuda.kube.errors import FieldError

Operation = Literal["CREATE", "UPDATE", "DELETE"]


class Unseen(KubeError):
    """Raised when the admission function has no cache of that kind and cannot know whether an object exists."""


class Lookup(Protocol):
    """Reader of other objects, from committed state; returns None if there is no such object. Raises Unseen."""

    def __call__(self, api_version: str, plural: str, namespace: str, name: str) -> dict[str, Any] | None: ...


class Select(Protocol):
    """Reader of the objects of a namespace (empty: all namespaces) that have all these labels. Raises Unseen."""

    def __call__(
        self, api_version: str, plural: str, namespace: str, labels: Mapping[str, str]
    ) -> list[dict[str, Any]]: ...


def nothing(api_version: str, plural: str, namespace: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Select nothing: a `Select` for callers that have no other objects."""
    return []


EVERY_KIND = "*"  # as the plural of a Registration: every kind of the group, also future ones


class Review(msgspec.Struct, frozen=True, kw_only=True):
    operation: Operation
    group: str
    version: str
    kind: str
    resource: str
    namespace: str
    name: str
    user: str
    lookup: Lookup
    select: Select = nothing
    subresource: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""  # of the user
    extra: Mapping[str, tuple[str, ...]] = {}  # of the user
    by_manager: bool = False  # whether the user is this manager itself
    old: dict[str, Any] | None = None
    new: dict[str, Any] | None = None
    dry_run: bool = False

    @property
    def subject(self) -> Subject:
        return Subject(name=self.user, uid=self.uid, groups=self.groups, extra=self.extra)


class AdmissionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an admission function. `errors` deny the request with 422, `denied` with 403."""

    patch: dict[str, Any] | None = None  # a JSON merge patch on `new`
    warnings: tuple[str, ...] = ()
    errors: tuple[FieldError, ...] = ()
    denied: str = ""


ALLOWED = AdmissionResult()

AdmissionFunction = Callable[[Review], AdmissionResult]
Needs = Callable[[Review], Sequence[RequiredAccess]]


def allow(review: Review) -> AdmissionResult:
    """Allow every write. For registrations that only have needs."""
    return ALLOWED


def all_needs(*several: Needs) -> Needs:
    def needs(review: Review) -> list[RequiredAccess]:
        return [access for each in several for access in each(review)]

    return needs


class AdmissionRegistration(NamedTuple):
    """Registration of an admission function for one resource, as engines receive it."""

    group: str
    plural: str
    function: AdmissionFunction
    operations: tuple[Operation, ...] = ("CREATE", "UPDATE")
    needs: Needs | None = None
