"""Answers to AdmissionReviews. Only permission checks send a request to the API server.

The API server makes two calls, and a function's verdict is split over them. The mutating call returns the defaults and
refuses nothing, because other webhooks may still change the object. The validating call sees the object as it will be
stored, and returns errors and warnings. Required permissions of the user are checked in the validating call, before the
function runs.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from remuda.kube.admission import (
    AdmissionFunction,
    AdmissionRegistration,
    AdmissionResult,
    Lookup,
    Needs,
    Operation,
    Review,
    Select,
    Unseen,
    nothing,
)
from remuda.kube.authorization import RequiredAccess, Subject, denial
from remuda.kube.client import Target
from remuda.kube.errors import StatusError, bad_request, forbidden_request, invalid_object
from remuda.kube.objects import Kind
from remuda.kube.patches import apply_merge_patch, create_json_patch
from remuda.kube.selectors import label_selector_from_labels
from remuda.runtime.caches import Caches, Informer

API_VERSION = "admission.k8s.io/v1"

Call = Literal["mutate", "validate"]
Permits = Callable[[Subject, RequiredAccess], Awaitable[bool]]


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Admission function of one kind, in the version that it understands."""

    kind: str
    target: Target
    function: AdmissionFunction
    operations: tuple[Operation, ...]
    needs: Needs | None = None
    only: str = ""  # a CEL expression over the request: the API server calls only if it is true
    except_manager: bool = False  # the API server does not call for the manager's own writes

    def path(self, call: Call) -> str:
        """Return the URL path: `/mutate-cluster-x-k8s-io-v1beta2-machine`."""
        return f"/{call}-{self.target.group.replace('.', '-')}-{self.target.version}-{self.kind.lower()}"

    def operations_of(self, call: Call) -> tuple[Operation, ...]:
        """Return the operations of a call. A delete has nothing to default."""
        return tuple(one for one in self.operations if call == "validate" or one != "DELETE")


def join(kinds: Iterable[Kind[Any]], registrations: Iterable[AdmissionRegistration]) -> list[Webhook]:
    """Join functions with their kinds. Raise ValueError for a function whose kind is missing."""
    known = {(kind.group, kind.plural): kind for kind in kinds}
    found = []
    for group, plural, function, operations, needs in registrations:
        kind = known.get((group, plural))
        if kind is None:
            raise ValueError(f"no kind is given for the admission of {plural}.{group}")
        found.append(Webhook(kind=kind.name, target=kind.target, function=function, operations=operations, needs=needs))
    return found


def lookup_in(caches: Caches) -> Lookup:
    """Return a Lookup in the caches; it raises Unseen for a kind that is not cached, or only in part."""

    def lookup(api_version: str, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        value = _whole(caches, api_version, plural, namespace).raw(namespace, name)
        return msgspec.json.decode(value) if value is not None else None

    return lookup


def _whole(caches: Caches, api_version: str, plural: str, namespace: str) -> Informer[Any]:
    informer = caches.whole(Target(api_version, plural))
    if informer is None or informer.namespace not in ("", namespace):
        raise Unseen(f"{plural} of {api_version} are not cached here")
    return informer


def select_in(caches: Caches) -> Select:
    """Return a Select in the caches."""

    def select(api_version: str, plural: str, namespace: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        informer = _whole(caches, api_version, plural, namespace)
        selector = label_selector_from_labels(labels)
        chosen = [one.key for one in informer.all(namespace) if selector.matches(one.metadata.labels)]
        values = (informer.raw(*key) for key in chosen)
        return [msgspec.json.decode(value) for value in values if value is not None]

    return select


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = ()
    extra: dict[str, tuple[str, ...]] | None = None


class _GroupVersionKind(msgspec.Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _GroupVersionResource(msgspec.Struct):
    group: str = ""
    version: str = ""
    resource: str = ""


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    operation: str
    kind: _GroupVersionKind = msgspec.field(default_factory=_GroupVersionKind)
    resource: _GroupVersionResource = msgspec.field(default_factory=_GroupVersionResource)
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: _User = msgspec.field(default_factory=_User)
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool | None = False


class _AdmissionReview(msgspec.Struct, rename="camel"):
    request: _Request
    api_version: str = ""
    kind: str = ""


_decode = msgspec.json.Decoder(_AdmissionReview).decode


async def answer(
    webhook: Webhook,
    call: Call,
    body: bytes,
    lookup: Lookup,
    select: Select = nothing,
    *,
    permits: Permits,
    own: str = "",
) -> bytes:
    """Answer a review. `own`: the user name of the manager. Raise a 400 StatusError for anything but an AdmissionReview
    v1, and the API server's error if a permission check fails.
    """
    request = _read(body)
    if request.operation not in webhook.operations_of(call):
        return _response(request, {"allowed": True})
    review = _review(request, lookup, select, own)
    if call == "mutate":
        return _response(request, _mutated(request, webhook.function(review)))
    # The permissions are those of the user who writes: with the manager's, users could refer to objects that they
    # cannot read.
    for access in webhook.needs(review) if webhook.needs is not None else ():
        if not await permits(review.subject, access):
            return _response(request, _validated(request, AdmissionResult(denied=denial(access))))
    return _response(request, _validated(request, webhook.function(review)))


def _read(body: bytes) -> _Request:
    try:
        review = _decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise bad_request(f"not an AdmissionReview: {error}") from None
    if (review.api_version, review.kind) != (API_VERSION, "AdmissionReview"):
        raise bad_request(f"not an AdmissionReview of {API_VERSION}: {review.kind} {review.api_version}")
    return review.request


def _review(request: _Request, lookup: Lookup, select: Select, own: str) -> Review:
    return Review(
        operation=request.operation,  # type: ignore[arg-type]  # one of the webhook's own
        group=request.resource.group,
        version=request.resource.version,
        kind=request.kind.kind,
        resource=request.resource.resource,
        subresource=request.sub_resource,
        namespace=request.namespace,
        name=request.name or _metadata_name(request),
        user=request.user_info.username,
        groups=request.user_info.groups or (),
        uid=request.user_info.uid,
        extra=request.user_info.extra or {},
        # If the manager's user is unknown, no user is the manager; an empty user name must not match.
        by_manager=bool(own) and request.user_info.username == own,
        old=request.old_object,
        new=request.object,
        dry_run=request.dry_run or False,
        lookup=lookup,
        select=select,
    )


def _metadata_name(request: _Request) -> str:
    metadata = (request.object or request.old_object or {}).get("metadata") or {}
    return str(metadata.get("name") or "")


def _mutated(request: _Request, verdict: AdmissionResult) -> dict[str, Any]:
    if verdict.patch is None or request.object is None:
        return {"allowed": True}
    patch = create_json_patch(request.object, apply_merge_patch(request.object, verdict.patch))
    if not patch:
        return {"allowed": True}
    return {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}


def _validated(request: _Request, verdict: AdmissionResult) -> dict[str, Any]:
    response: dict[str, Any] = {"allowed": not (verdict.denied or verdict.errors)}
    if verdict.warnings:
        response["warnings"] = _unique(verdict.warnings)
    if not response["allowed"]:
        response["status"] = _refusal(request, verdict).status()
    return response


def _refusal(request: _Request, verdict: AdmissionResult) -> StatusError:
    group, name = request.resource.group, request.name or _metadata_name(request)
    if verdict.denied:
        return forbidden_request(group, request.resource.resource, name, verdict.denied)
    return invalid_object(group, request.kind.kind, name, verdict.errors)


def _unique(warnings: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(warnings))


def _response(request: _Request, response: dict[str, Any]) -> bytes:
    return msgspec.json.encode(
        {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": {"uid": request.uid, **response}}
    )
