"""Quotas of users: how many clusters, machines and tokens one User may own.

The owner of a cluster is the user recorded in its creator annotation. Machines are counted as the pools of the user's
clusters ask for them; hosts that register themselves are not counted. The limits are those of the User, else the
defaults that the process was started with. Administrators are not limited, whoever owns the object: the group
system:masters, and whom a ClusterRoleBinding gives cluster-admin.

On the embedded engine the check is exact. Webhooks see the manager's caches, so that concurrent requests can exceed a
limit by as many as arrive before the caches follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.access.admission import audited
from remuda.access.types import CLUSTER_ROLE_BINDING, DECLARED_CLUSTER, TOKEN, USER, Quota, User
from remuda.kube import clock
from remuda.kube.admission import ALLOWED, AdmissionFunction, AdmissionRegistration, AdmissionResult, Review, Unseen
from remuda.kube.authorization import MASTERS
from remuda.kube.objects import value_at
from remuda.providers.shared import names
from remuda.runtime.webhooks import Webhook

Json = dict[str, Any]

NO_LIMITS = Quota()
_CLUSTER_ADMIN = "cluster-admin"


def cluster_quota(defaults: Quota) -> AdmissionFunction:
    """Return the admission of declared Clusters."""

    def admit(review: Review) -> AdmissionResult:
        new, old = review.new, review.old
        if review.subresource or new is None:
            return ALLOWED
        # Read the creator from the stored object: the author of an update could write another name into the new one.
        owner = review.user if old is None else _creator(old)
        quota = _quota_of(review, owner, defaults)
        grows = _machines(new) - (_machines(old) if old is not None else 0)
        counts_clusters = old is None and quota.clusters is not None
        if not counts_clusters and (quota.machines is None or grows <= 0):
            return ALLOWED
        try:
            owned = [
                one
                for one in review.select(DECLARED_CLUSTER.api_version, DECLARED_CLUSTER.plural, "", {})
                if _creator(one) == owner
            ]
        except Unseen:
            return ALLOWED
        if counts_clusters and quota.clusters is not None and len(owned) >= quota.clusters:
            have = f"user {owner} owns {_some(len(owned), 'cluster')} and may own {quota.clusters}"
            return _refuse(review, have, _raised(owner, "clusters", len(owned) + 1))
        wanted = sum(map(_machines, owned)) + grows
        if quota.machines is not None and grows > 0 and wanted > quota.machines:
            have = (
                f"the clusters of user {owner} ask for {_some(wanted - grows, 'machine')}, this change adds {grows}, "
                f"and the user may own {quota.machines}"
            )
            return _refuse(review, have, _raised(owner, "machines", wanted))
        return ALLOWED

    return admit


def token_quota(defaults: Quota) -> AdmissionFunction:
    """Return the admission of Tokens that users create for themselves; those that others create are not limited."""

    def admit(review: Review) -> AdmissionResult:
        if review.subresource or review.new is None or review.new.get("userId") != review.user:
            return ALLOWED
        limit = _quota_of(review, review.user, defaults).tokens
        if limit is None:
            return ALLOWED
        try:
            tokens = review.select(TOKEN.api_version, TOKEN.plural, "", {})
        except Unseen:
            return ALLOWED
        valid = [one for one in tokens if one.get("userId") == review.user and not _expired(one)]
        if len(valid) < limit:
            return ALLOWED
        have = f"user {review.user} has {_some(len(valid), 'valid token')} and may have {limit}"
        return _refuse(review, have, _raised(review.user, "tokens", len(valid) + 1))

    return admit


def registrations(defaults: Quota = NO_LIMITS) -> list[AdmissionRegistration]:
    return [
        AdmissionRegistration(DECLARED_CLUSTER.group, DECLARED_CLUSTER.plural, audited(cluster_quota(defaults))),
        AdmissionRegistration(TOKEN.group, TOKEN.plural, audited(token_quota(defaults)), ("CREATE",)),
    ]


def webhooks(defaults: Quota = NO_LIMITS) -> list[Webhook]:
    """Return the same for an API server elsewhere."""
    clusters, tokens = audited(cluster_quota(defaults)), audited(token_quota(defaults))
    return [
        Webhook(
            kind="ClusterQuota", target=DECLARED_CLUSTER.target, function=clusters, operations=("CREATE", "UPDATE")
        ),
        Webhook(kind="TokenQuota", target=TOKEN.target, function=tokens, operations=("CREATE",)),
    ]


def _quota_of(review: Review, name: str, defaults: Quota) -> Quota:
    """Return the limits of a User; none for other callers, who have no object for them."""
    try:
        found = review.lookup(USER.api_version, USER.plural, "", name) if name else None
        user = msgspec.convert(found, User) if found is not None else None
    except (Unseen, msgspec.ValidationError):
        return NO_LIMITS
    if user is None:
        return NO_LIMITS
    own = user.quota
    return Quota(
        clusters=defaults.clusters if own.clusters is None else own.clusters,
        machines=defaults.machines if own.machines is None else own.machines,
        tokens=defaults.tokens if own.tokens is None else own.tokens,
    )


def _refuse(review: Review, have: str, remedy: str) -> AdmissionResult:
    # Check this last: it reads all ClusterRoleBindings.
    return ALLOWED if _is_administrator(review) else AdmissionResult(denied=f"{have}; {remedy}")


def _is_administrator(review: Review) -> bool:
    if MASTERS in review.groups:
        return True
    try:
        bindings = review.select(CLUSTER_ROLE_BINDING.api_version, CLUSTER_ROLE_BINDING.plural, "", {})
    except Unseen:
        return False
    return any(
        _is_subject(review, subject)
        for binding in bindings
        if value_at(binding, "roleRef", "name") == _CLUSTER_ADMIN
        for subject in binding.get("subjects") or ()
    )


def _is_subject(review: Review, subject: Json) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "ServiceAccount":
        return review.user == f"system:serviceaccount:{subject.get('namespace')}:{name}"
    return name in review.groups if kind == "Group" else name == review.user


def _raised(user: str, field: str, enough: int) -> str:
    patch = f'{{"quota":{{"{field}":{enough}}}}}'
    command = f"kubectl patch {USER.plural}.{USER.group} {user} --type=merge -p '{patch}'"
    return f"ask an administrator for more: {command}"


def _creator(obj: Json) -> str:
    annotations = value_at(obj, "metadata", "annotations")
    return str(annotations.get(names.CREATOR) or "") if isinstance(annotations, Mapping) else ""


def _machines(obj: Json) -> int:
    """Return how many machines the pools of a Cluster may have, also by an autoscaler. Admission runs before
    validation, so the object may have any shape."""
    pools = value_at(obj, "spec", "rkeConfig", "machinePools")
    return sum(map(_most, pools)) if isinstance(pools, list) else 0


def _most(pool: Any) -> int:
    quantity, most = value_at(pool, "quantity"), value_at(pool, "autoscalingMaxSize")
    counts = [1 if quantity is None else quantity, most]
    return max((count for count in counts if isinstance(count, int) and count > 0), default=0)


def _expired(token: Json) -> bool:
    until = token.get("expiresAt")
    try:
        return until is not None and clock.parse(str(until)) <= clock.time()
    except ValueError:
        return True  # such a token is never accepted


def _some(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
