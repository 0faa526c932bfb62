"""Admission of tokens and grants: denies objects that can never work, or that give more than their author may give.

A User creates tokens only for itself. Everybody else who may create tokens by RBAC (an administrator) may create them
for any User.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from remuda.access.audit import refused_by_admission
from remuda.access.types import (
    ANY_ROLE,
    DIGEST,
    GRANT,
    KINDS,
    MANAGEMENT_CLUSTER,
    MOST_CLUSTERS,
    NO_HASH,
    ROLES,
    TOKEN,
    USER,
    ClusterRoleTemplateBinding,
    Token,
    role_of,
)
from remuda.kube import clock, names
from remuda.kube.admission import ALLOWED, AdmissionFunction, AdmissionRegistration, AdmissionResult, Review, Unseen
from remuda.kube.authorization import MASTERS
from remuda.kube.errors import OMITTED, FieldError, forbidden, invalid, not_supported, required, too_many
from remuda.kube.objects import Kind, Object, without_nulls
from remuda.providers.controlplane.identity import id_of
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.runtime.webhooks import Webhook, join

T = TypeVar("T", bound=Object)

_MOST_SHOWN = 16  # complaints in one audit line
_FIXED = "is immutable: create another object and delete this one"


def admit_token(review: Review) -> AdmissionResult:
    read = _read(TOKEN, review)
    if read is None:
        return ALLOWED
    old, new = read
    if len(new.cluster_names) > MOST_CLUSTERS:
        # Admission runs before schema validation, and looks up each name.
        return AdmissionResult(errors=(too_many("clusterNames", len(new.cluster_names), MOST_CLUSTERS),))
    found = token_complaints(new)
    if old is not None:
        fixed = (("userId", old.user_id, new.user_id), ("hash", old.hash, new.hash))
        found += [forbidden(path, _FIXED) for path, before, after in fixed if before != after]
    if old is None or old.expires_at != new.expires_at:
        found += _expiry(new)
    if old is None and not found:
        found += _own(review, new) or _known_user(review, new.user_id, "userId")
    before = set(old.cluster_names) if old is not None else set()
    added = {cluster: index for index, cluster in enumerate(new.cluster_names) if cluster not in before}
    found += _known_clusters(review, {cluster: f"clusterNames[{index}]" for cluster, index in added.items()})
    return AdmissionResult(errors=tuple(found))


def token_complaints(token: Token) -> list[FieldError]:
    found = [] if token.user_id else [required("userId", "name the User that owns the token")]
    if not re.fullmatch(DIGEST, token.hash):
        found.append(invalid("hash", OMITTED, NO_HASH))  # the value may be the secret itself, so it is not shown
    return found


def _expiry(token: Token) -> list[FieldError]:
    if token.expires_at is None:
        return []
    try:
        past = clock.parse(token.expires_at) <= clock.time()
    except ValueError:
        return [invalid("expiresAt", token.expires_at, "must be an RFC 3339 time such as 2030-01-31T12:00:00Z")]
    return [invalid("expiresAt", token.expires_at, "is in the past; to revoke a token, delete it")] if past else []


def _own(review: Review, token: Token) -> list[FieldError]:
    if token.user_id == review.user or MASTERS in review.groups:
        return []
    try:
        asks = review.lookup(USER.api_version, USER.plural, "", review.user)
    except Unseen:
        return []
    why = f"user {review.user} may create tokens only for itself"
    return [] if asks is None else [invalid("userId", token.user_id, why)]


def admit_grant(review: Review) -> AdmissionResult:
    read = _read(GRANT, review)
    if read is None:
        return ALLOWED
    old, new = read
    if old is not None:
        pairs = (
            ("clusterName", old.cluster_name, new.cluster_name),
            ("userName", old.user_name, new.user_name),
            ("groupName", old.group_name, new.group_name),
            ("roleTemplateName", old.role_template_name, new.role_template_name),
        )
        return AdmissionResult(
            errors=tuple(forbidden(path, _FIXED) for path, before, after in pairs if before != after)
        )
    found = grant_complaints(new, review.namespace)
    if not found:
        found = _known_clusters(review, {new.cluster_name: "clusterName"})
        found += _known_user(review, new.user_name, "userName") if new.user_name else []
    return AdmissionResult(errors=tuple(found))


def grant_complaints(grant: ClusterRoleTemplateBinding, namespace: str) -> list[FieldError]:
    found = []
    if grant.cluster_name != namespace:
        why = f"must be the id of the cluster whose namespace this is: {namespace}"
        found.append(invalid("clusterName", grant.cluster_name, why))
    if bool(grant.user_name) == bool(grant.group_name):
        found.append(required("userName", "set either userName or groupName"))
    role = role_of(grant)
    if not role:
        allowed = (*ROLES, f"{ANY_ROLE}<name>")
        found.append(not_supported("roleTemplateName", grant.role_template_name, allowed))
    else:
        found += [invalid("roleTemplateName", grant.role_template_name, text) for text in names.path_segment(role)]
    return found


def _known_user(review: Review, name: str, path: str) -> list[FieldError]:
    try:
        found = review.lookup(USER.api_version, USER.plural, "", name)
    except Unseen:
        return []
    return [] if found is not None else [invalid(path, name, "user not found; create it with `remuda user create`")]


def _known_clusters(review: Review, paths: Mapping[str, str]) -> list[FieldError]:
    """Return errors for ids that no cluster has; `paths` maps each id to its field. Control planes are read only once,
    because decoding them is expensive."""
    try:
        unknown = [
            id
            for id in paths
            if review.lookup(MANAGEMENT_CLUSTER.api_version, MANAGEMENT_CLUSTER.plural, "", id) is None
        ]
        planes = review.select(RKE_CONTROL_PLANE.api_version, RKE_CONTROL_PLANE.plural, "", {}) if unknown else []
    except Unseen:
        return []
    ids = {id_of(RKE_CONTROL_PLANE.decode(msgspec.json.encode(plane))) for plane in planes}
    why = "no cluster has this id; list the ids with `kubectl get clusters.management.cattle.io`"
    return [invalid(paths[id], id, why) for id in unknown if id not in ids]


def _read(kind: Kind[T], review: Review) -> tuple[T | None, T] | None:
    """Return the old and the new object; None if there is nothing to check, or if the object does not fit its schema,
    which reports that itself."""
    if review.subresource or review.new is None or review.new["metadata"].get("deletionTimestamp"):
        return None
    try:
        old = _convert(kind, review.old) if review.old is not None else None
        return old, _convert(kind, review.new)
    except msgspec.ValidationError:
        return None


def _convert(kind: Kind[T], value: dict[str, Any]) -> T:
    try:
        return msgspec.convert(value, kind.type)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(value), kind.type)


def audited(judge: AdmissionFunction) -> AdmissionFunction:
    """Wrap an admission function so that each denial has an audit line: these objects are permissions."""

    def judged(review: Review) -> AdmissionResult:
        verdict = judge(review)
        if verdict.errors or verdict.denied:
            place = f"/namespaces/{review.namespace}" if review.namespace else ""
            path = f"/apis/{review.group}/{review.version}{place}/{review.resource}/{review.name}".rstrip("/")
            shown = verdict.errors[:_MOST_SHOWN]
            why = verdict.denied or "; ".join(map(str, shown))
            if len(shown) < len(verdict.errors):
                why += f"; and {len(verdict.errors) - len(shown)} more"
            refused_by_admission(review.user, review.operation.lower(), path, 403 if verdict.denied else 422, why)
        return verdict

    return judged


FUNCTIONS: list[AdmissionRegistration] = [
    AdmissionRegistration(TOKEN.group, TOKEN.plural, audited(admit_token)),
    AdmissionRegistration(GRANT.group, GRANT.plural, audited(admit_grant)),
]
WEBHOOKS: list[Webhook] = join(KINDS, FUNCTIONS)
