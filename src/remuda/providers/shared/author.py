"""Check and record the user who chose a credential that servers are created with.

A user may name only Secrets that they may get. Admission checks this for every write that uses a credential anew: by
another reference, or by the same reference with other options, which decide whom the credential is shown to. It records
the user in the annotation AUTHOR, which only admission, the manager and administrators write. The manager copies the
annotation to what it makes, and asks again before it creates a server (`check`), because rights can be revoked. Objects
without an author keep working: they are older than this check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from remuda.capi import names as capi_names
from remuda.kube.admission import ALLOWED, AdmissionFunction, AdmissionResult, Needs, Review
from remuda.kube.authorization import MASTERS, RequiredAccess, Subject, permits
from remuda.kube.client import Client
from remuda.kube.core import SECRETS
from remuda.kube.objects import value_at
from remuda.providers.shared import credentials
from remuda.providers.shared.credentials import BadReference
from remuda.providers.shared.restriction import is_clone
from remuda.providers.shared.types.machine import options_of

Json = dict[str, Any]

AUTHOR = "remuda.dev/author"  # annotation: the user as JSON
NO_AUTHOR = "NoAuthor"  # reason of a condition, or an event
TAKE_OVER = f"{AUTHOR}=me --overwrite"  # for `kubectl annotate`: the user who writes it becomes the author


class CredentialUse(NamedTuple):
    """Credential, and the options that it is used with."""

    access: RequiredAccess
    content: str

    @property
    def identity(self) -> tuple[object, str]:
        return self.access.right, self.content


UsesOf = Callable[[Review, Json], Sequence[CredentialUse]]


def credential(reference: str, namespace: str, field: str) -> RequiredAccess | None:
    """Return the right that naming a credential needs; None for a reference that is none."""
    try:
        place = credentials.place(reference, namespace) if reference else None
    except BadReference:
        return None
    if place is None:
        return None
    return RequiredAccess(
        verb="get", group="", resource=SECRETS.plural, namespace=place.namespace, name=place.name, field=field
    )


def use(reference: Any, namespace: str, field: str, content: object) -> list[CredentialUse]:
    access = credential(str(reference or ""), namespace, field)
    return [] if access is None else [CredentialUse(access, msgspec.json.encode(content, order="sorted").decode())]


# ---- admission -------------------------------------------------------------------------------------------------------


def uses_credentials(uses_of: UsesOf) -> Needs:
    """Return the rights on the credentials that a write newly uses; on all of them, if it makes the user
    their author.
    """

    def needs(review: Review) -> list[RequiredAccess]:
        if not _is_concerned(review):
            return []
        assert review.new is not None
        fresh = _fresh(review, uses_of)
        if not fresh and not _takes_over(review):
            return []
        known = of_object(review.old)
        if known is None or known.name != review.user:
            fresh = list(uses_of(review, review.new))
        return list({one.access.right: one.access for one in reversed(fresh)}.values())[::-1]

    return needs


def records_author(uses_of: UsesOf) -> AdmissionFunction:
    """Return a function that writes the author of an object's credentials, and keeps what users change of that."""

    def admit(review: Review) -> AdmissionResult:
        if not _is_concerned(review):
            return ALLOWED
        assert review.new is not None
        before, said = _annotations(review.old), _annotations(review.new)
        wanted: dict[str, str | None] = {}
        if capi_names.CLONED_FROM_NAME in before:  # leads to the template, whose author a machine without one has
            wanted[capi_names.CLONED_FROM_NAME] = before[capi_names.CLONED_FROM_NAME]
        if MASTERS in review.groups and said.get(AUTHOR, "") not in ("", before.get(AUTHOR, "")) and _reads(said):
            wanted[AUTHOR] = said[AUTHOR]  # an administrator restores an object
        # A controller that clones a template is not the author: the author of the template counts.
        elif is_clone(review):
            wanted[AUTHOR] = None
        elif uses_of(review, review.new) and (_fresh(review, uses_of) or _takes_over(review)):
            wanted[AUTHOR] = _written(review.subject)
        else:
            wanted[AUTHOR] = before.get(AUTHOR)
        changed = {name: value for name, value in wanted.items() if said.get(name) != value}
        return AdmissionResult(patch={"metadata": {"annotations": changed}}) if changed else ALLOWED

    return admit


def _is_concerned(review: Review) -> bool:
    """Nothing is asked of an object that is being deleted: deletion always works."""
    if review.subresource or review.new is None or review.by_manager:
        return False
    return not value_at(review.new, "metadata", "deletionTimestamp")


def _fresh(review: Review, uses_of: UsesOf) -> list[CredentialUse]:
    assert review.new is not None
    known = {one.identity for one in uses_of(review, review.old)} if review.old is not None else set()
    return [one for one in uses_of(review, review.new) if one.identity not in known]


def _takes_over(review: Review) -> bool:
    """Return True if a user asks to become the author, by writing anything into the annotation."""
    said = _annotations(review.new).get(AUTHOR, "")
    return review.old is not None and bool(said) and said != _annotations(review.old).get(AUTHOR, "")


def _annotations(obj: Json | None) -> Mapping[str, str]:
    found = value_at(obj, "metadata", "annotations")
    return found if isinstance(found, Mapping) else {}


# ---- the record ------------------------------------------------------------------------------------------------------


class _Record(msgspec.Struct, omit_defaults=True):
    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()


def _written(subject: Subject) -> str:
    return msgspec.json.encode(_Record(subject.name, subject.uid, subject.groups)).decode()


def _reads(annotations: Mapping[str, str]) -> bool:
    return of(annotations) is not None


def of(annotations: Mapping[str, str]) -> Subject | None:
    """Return the recorded author; None where there is no record that can be read."""
    try:
        record = msgspec.json.decode(annotations.get(AUTHOR, ""), type=_Record)
    except (msgspec.MsgspecError, TypeError):
        return None
    return Subject(name=record.user, uid=record.uid, groups=record.groups)


def of_object(obj: Json | None) -> Subject | None:
    return of(_annotations(obj))


def copied(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotation for objects that the manager creates from an object."""
    return {AUTHOR: annotations[AUTHOR]} if AUTHOR in annotations else {}


# ---- before a server is created --------------------------------------------------------------------------------------


async def check(client: Client, author: Subject, reference: str, namespace: str) -> str:
    """Return why the author may not use the credential any more, for users; empty if they may."""
    access = credential(reference, namespace, "")
    if access is None or await permits(client, author, access):
        return ""
    secret = f"{access.namespace}/{access.name}"
    return (
        f"user {author.name}, who chose the credential Secret {secret}, no longer has the right to get it, so no new "
        f"server is created with it. Grant {author.name} this right again, choose another credential, or let a user "
        f"with the right take over the object that refers to it: kubectl annotate KIND NAME {TAKE_OVER}"
    )


def unknown(who: str) -> str:
    """Return the message for an object without an author, and how to set one."""
    return (
        f"the user who chose the credential of {who} is not recorded, so servers are created with it unchecked. Let a "
        "user with the right to get the credential take over the object that refers to it: kubectl annotate KIND NAME "
        f"{TAKE_OVER}"
    )


# ---- uses of machines and their templates ----------------------------------------------------------------------------


def of_driver_machine(review: Review, obj: Json) -> list[CredentialUse]:
    """Return the uses of a <Driver>Machine or a <Driver>MachineTemplate."""
    path: tuple[str, ...] = ("spec", "template", "spec") if review.kind.endswith("Template") else ("spec",)
    spec = value_at(obj, *path)
    if not isinstance(spec, Mapping):
        return []
    field = ".".join((*path, "common.cloudCredentialSecretName"))
    return use(value_at(spec, "common", "cloudCredentialSecretName"), review.namespace, field, options_of(spec))


def of_infrastructure(review: Review, obj: Json) -> list[CredentialUse]:
    """Return the uses of an RKECluster."""
    asked = value_at(obj, "spec", "infrastructure")
    if not isinstance(asked, Mapping):
        return []
    name = "cloudCredentialSecretName"
    content = {key: value for key, value in asked.items() if key != name}
    return use(asked.get(name), review.namespace, f"spec.infrastructure.{name}", content)
