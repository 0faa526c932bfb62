"""TokenRequest: the create of serviceaccounts/token, from the request's body to the signed token.

Pure: it uses the given settings, signer, lookups of stored objects and time. It decodes the body itself, because no
stored kind has this type. The authorizer has already decided who may request a token.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from remuda.apiserver.apply import managed
from remuda.apiserver.auth import tokens
from remuda.apiserver.auth.jws import Signer
from remuda.apiserver.auth.tokens import KubernetesClaim, Lookup, Ref, TokenSettings
from remuda.apiserver.schema.walk import Structural
from remuda.kube import clock, errors
from remuda.kube.go_text import quoted
from remuda.kube.schema import OBJECT_META, Schema

GROUP = "authentication.k8s.io"
KIND = "TokenRequest"
# The limits of upstream's validation.
SHORTEST = 600
LONGEST = 1 << 32
DEFAULT_SECONDS = 3600
FieldValidation = Literal["Ignore", "Warn", "Strict"]
# The kubelet requests tokens for pods with this lifetime. Such a token is valid for a year, with a warning after the
# requested time.
_PROJECTED_SECONDS = 3607
_EXTENDED_SECONDS = 365 * 24 * 3600


_STRINGS = Schema(type="array", items=Schema(type="string"))
_BOUND_OBJECT = Schema(
    type="object",
    ref="BoundObjectReference",
    properties={key: Schema(type="string") for key in ("kind", "apiVersion", "name", "uid")},
)
_SPEC = Schema(
    type="object",
    ref="TokenRequestSpec",
    properties={
        "audiences": _STRINGS,
        "expirationSeconds": Schema(type="integer", format="int64"),
        "boundObjectRef": _BOUND_OBJECT,
    },
)
_STATUS = Schema(
    type="object",
    ref="TokenRequestStatus",
    properties={"token": Schema(type="string"), "expirationTimestamp": Schema(type="string", format="date-time")},
)
_SHAPE = Structural(
    Schema(
        type="object",
        ref=KIND,
        properties={
            "apiVersion": Schema(type="string"),
            "kind": Schema(type="string"),
            "metadata": OBJECT_META,
            "spec": _SPEC,
            "status": _STATUS,
        },
    ),
    native=True,
    kind=KIND,
)


class Issued(NamedTuple):
    obj: dict[str, Any]  # the TokenRequest with its status
    warnings: list[str]


class _PodSpec(msgspec.Struct, rename="camel"):
    service_account_name: str = ""
    node_name: str = ""


class _Meta(msgspec.Struct):
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


class _Identified(msgspec.Struct):
    metadata: _Meta


_decode_pod = msgspec.json.Decoder(_Object).decode
_decode_meta = msgspec.json.Decoder(_Identified).decode


def request_token(
    obj: dict[str, Any],
    namespace: str,
    name: str,
    *,
    settings: TokenSettings,
    signer: Signer,
    lookup: Lookup,
    now: float,
    manager: str = "",
    field_validation: FieldValidation = "Warn",
) -> Issued:
    """Create a token. `obj` is the decoded body; unknown fields are removed. Raise StatusError."""
    warnings = _decoded(obj, field_validation)
    _own(obj, manager, now)
    uid = _account_uid(obj, namespace, name, lookup)
    spec = dict(obj.get("spec") or {})
    audiences = tuple(spec.get("audiences") or settings.api_audiences)
    seconds = spec["expirationSeconds"]
    _validate_seconds(seconds)
    claim = _bound(spec.get("boundObjectRef"), namespace, Ref(name, uid), lookup)
    limit = settings.max_expiration_seconds
    if 0 < limit < seconds:
        warnings.append(f"requested expiration of {seconds} seconds shortened to {limit} seconds")
        seconds = limit
    lifetime, claim = _extended(claim, seconds, audiences, settings, now)
    token = tokens.sign(signer, tokens.bound_claims(settings.issuer, claim, audiences, lifetime, now))
    spec.update(audiences=list(audiences), expirationSeconds=seconds, boundObjectRef=spec.get("boundObjectRef"))
    metadata = {**(obj.get("metadata") or {}), "name": name, "namespace": namespace, "uid": uid}
    metadata["creationTimestamp"] = clock.rfc3339(now)
    status = {"token": token, "expirationTimestamp": clock.rfc3339(now + seconds)}
    issued = {"kind": KIND, "apiVersion": f"{GROUP}/v1", "metadata": metadata, "spec": spec, "status": status}
    return Issued(issued, warnings)


def _decoded(obj: dict[str, Any], field_validation: FieldValidation) -> list[str]:
    """Make `obj` fit its schema, and return the warnings about what did not."""
    prepared = _SHAPE.prepare(obj)
    refused = f'{KIND} in version "v1" cannot be handled as a {KIND}'
    if prepared.malformed:
        raise errors.bad_request(f"{refused}: {prepared.malformed}")
    complaints = [f'unknown field "{path}"' for path in prepared.unknown]
    if complaints and field_validation == "Strict":
        raise errors.bad_request(f"{refused}: strict decoding error: {', '.join(complaints)}")
    return complaints if field_validation == "Warn" else []


def _own(obj: dict[str, Any], manager: str, now: float) -> None:
    """Fill in the defaults and record field ownership, as for any created object."""
    given = obj.get("spec") or {}
    seconds = given.get("expirationSeconds")
    obj["spec"] = {**given, "expirationSeconds": DEFAULT_SECONDS if seconds is None else seconds}
    managed.on_update(
        None,
        obj,
        schema=_SHAPE.schema,
        manager=manager,
        api_version=f"{GROUP}/v1",
        subresource="token",
        now=clock.rfc3339(now),
        blank={"metadata": {}, "spec": {}},
    )


def _account_uid(obj: dict[str, Any], namespace: str, name: str, lookup: Lookup) -> str:
    """Return the uid of the service account, after checking that the request's metadata agrees with it."""
    metadata = obj.get("metadata") or {}
    for key, mine in (("name", name), ("namespace", namespace)):
        given = metadata.get(key)
        if given and given != mine:
            complaint = errors.invalid(f"metadata.{key}", given, f"must match the service account {key} if specified")
            raise errors.invalid_object(GROUP, KIND, name, [complaint])
    entry = lookup("serviceaccounts", namespace, name)
    if entry is None:
        raise errors.not_found("", "serviceaccounts", name)
    uid = _decode_meta(entry.value).metadata.uid
    asked = metadata.get("uid")
    if asked and asked != uid:
        why = f"the UID in the token request ({asked}) does not match the UID of the service account ({uid})"
        raise errors.conflict(GROUP, KIND, name, why)
    return uid


def _validate_seconds(seconds: int) -> None:
    if SHORTEST <= seconds <= LONGEST:
        return
    wrong = "less than 10 minutes" if seconds < SHORTEST else "larger than 2^32 seconds"
    complaint = errors.invalid("spec.expirationSeconds", seconds, f"may not specify a duration {wrong}")
    raise errors.invalid_object(GROUP, KIND, "", [complaint])


def _bound(ref: dict[str, Any] | None, namespace: str, account: Ref, lookup: Lookup) -> KubernetesClaim:
    """Return the claim with the object that the token is bound to. The object must exist and have the requested uid."""
    if not ref:
        return KubernetesClaim(namespace, serviceaccount=account)
    group, _, version = (ref.get("apiVersion") or "").rpartition("/")
    kind, name = ref.get("kind") or "", ref.get("name") or ""
    if group or kind not in ("Pod", "Secret", "Node"):
        described = f"{group}/{version}, Kind={kind}"
        raise errors.bad_request(f"cannot bind token to object of type {described}")
    table = f"{kind.lower()}s"
    entry = lookup(table, "" if kind == "Node" else namespace, name)
    if entry is None:
        raise errors.not_found("", table, name)
    uid = _decode_meta(entry.value).metadata.uid
    node = _node_of_pod(entry.value, account, lookup) if kind == "Pod" else None
    if ref.get("uid") and ref["uid"] != uid:
        raise errors.conflict(
            "",
            kind,
            name,
            f"the UID in the bound object reference ({ref['uid']}) does not match the UID in record. "
            "The object might have been deleted and then recreated",
        )
    found = Ref(name, uid)
    if kind == "Pod":
        return KubernetesClaim(namespace, node=node, pod=found, serviceaccount=account)
    if kind == "Secret":
        return KubernetesClaim(namespace, secret=found, serviceaccount=account)
    return KubernetesClaim(namespace, node=found, serviceaccount=account)


def _node_of_pod(pod_value: bytes, account: Ref, lookup: Lookup) -> Ref | None:
    """Return the node that the pod runs on; only its name if that Node is unknown or deleted."""
    spec = _decode_pod(pod_value).spec
    if spec.service_account_name != account.name:
        raise errors.bad_request(
            f"cannot bind token for serviceaccount {quoted(account.name)} to pod running with different "
            "serviceaccount name."
        )
    if not spec.node_name:
        return None
    entry = lookup("nodes", "", spec.node_name)
    return Ref(spec.node_name, _decode_meta(entry.value).metadata.uid if entry is not None else "")


def _extended(
    claim: KubernetesClaim, seconds: int, audiences: tuple[str, ...], settings: TokenSettings, now: float
) -> tuple[int, KubernetesClaim]:
    """Return the actual lifetime, and the claim with the time from which the token counts as stale."""
    projected = settings.extend_expiration and claim.pod is not None and seconds == _PROJECTED_SECONDS
    if not projected or not set(audiences) <= set(settings.api_audiences):
        return seconds, claim
    return _EXTENDED_SECONDS, msgspec.structs.replace(claim, warnafter=int(now) + seconds)
