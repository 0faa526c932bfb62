"""Privilege escalation checks on writes of RBAC objects: users cannot grant permissions that they do not have.

Writing a (Cluster)Role requires every permission in it, or the verb `escalate` on it. Writing a binding requires every
permission of its role, or the verb `bind` on that role. Members of system:masters are not checked. Changes of owner
references and finalizers alone are allowed, so that the garbage collector can work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.apiserver.auth.messages import joined, quote_list
from remuda.apiserver.auth.rbac import RbacAuthorizer
from remuda.apiserver.auth.rbac_index import GROUP, RoleRef
from remuda.apiserver.auth.rules import PolicyRule, Strings, TooManyPermissions, rules_from, uncovered
from remuda.apiserver.auth.user import MASTERS, Attributes, User
from remuda.kube import errors
from remuda.kube.go_text import quoted

_EVERYTHING = (PolicyRule(("*",), ("*",), ("*",)), PolicyRule(("*",), non_resource_urls=("*",)))
_LEFT_TO_THE_COLLECTOR = ("ownerReferences", "finalizers", "selfLink", "managedFields")

RESOURCES = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")


def check_write(
    resource: str,
    user: User,
    namespace: str,
    new: dict[str, Any],
    old: dict[str, Any] | None,
    authorizer: RbacAuthorizer,
    request_name: str = "",
) -> None:
    """Check a write. `resource` is one of RESOURCES, `old` is None on create, `request_name` is the name in the URL
    (none on create). Raise Forbidden, or NotFound for a binding to a role that does not exist.
    """
    if MASTERS in user.groups:
        return
    if old is not None and _is_only_for_the_collector(new, old):
        return
    if resource in ("roles", "clusterroles"):
        _check_role(resource, user, namespace, new, old, authorizer, request_name)
    else:
        _check_binding(resource, user, namespace, new, authorizer)


def _check_role(
    resource: str,
    user: User,
    namespace: str,
    new: dict[str, Any],
    old: dict[str, Any] | None,
    authorizer: RbacAuthorizer,
    request_name: str,
) -> None:
    question = Attributes(
        verb="escalate", group=GROUP, version="*", resource=resource, namespace=namespace, name=request_name
    )
    if authorizer.authorize(user, question).allowed:
        return
    name = new["metadata"].get("name", "")
    problem = missing_permissions(resource, user, namespace, rules_from(new.get("rules")), authorizer)
    if problem:
        raise errors.forbidden_request(GROUP, resource, name, problem)
    # An aggregationRule grants the rules of roles that others create later. Nobody can check those now, so it needs all
    # rights.
    aggregates = _aggregates(new) or (old is not None and _aggregates(old))
    if resource == "clusterroles" and aggregates and missing_permissions(resource, user, "", _EVERYTHING, authorizer):
        why = "must have cluster-admin privileges to use the aggregationRule"
        raise errors.forbidden_request(GROUP, resource, name, why)


def _aggregates(role: dict[str, Any]) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _check_binding(resource: str, user: User, namespace: str, new: dict[str, Any], authorizer: RbacAuthorizer) -> None:
    ref = msgspec.convert(new.get("roleRef") or {}, RoleRef)
    if ref.kind not in ("Role", "ClusterRole"):
        raise errors.StatusError(500, "", f"unsupported role reference kind: {quoted(ref.kind)}")
    question = Attributes(
        verb="bind",
        group=ref.api_group or "",
        version="*",
        resource=f"{ref.kind.lower()}s",
        namespace=namespace,
        name=ref.name,
    )
    if authorizer.authorize(user, question).allowed:
        return
    if not ref.name:
        raise errors.bad_request("Name parameter required.")
    rules = authorizer.role_rules(ref, namespace)
    if rules is None:
        # Upstream names the resource of the request here, not that of the role.
        raise errors.not_found(GROUP, resource, ref.name)
    problem = missing_permissions(resource, user, namespace, rules, authorizer)
    if problem:
        raise errors.forbidden_request(GROUP, resource, new["metadata"].get("name", ""), problem)


def missing_permissions(
    resource: str, user: User, namespace: str, rules: Sequence[PolicyRule], authorizer: RbacAuthorizer
) -> str:
    """Return a message that lists the permissions of `rules` that the user lacks there; empty if none is missing."""
    held, dangling = authorizer.resolve(user, namespace)
    who = f"user {quoted(user.name)} (groups={quote_list(user.groups)})"
    try:
        missing = uncovered(held, rules)
    except TooManyPermissions as problem:
        return f"{who} is attempting to grant RBAC permissions that cannot be checked: {problem}"
    if not missing:
        return ""
    listed = "\n".join(sorted({rule.compact() for rule in compacted(missing)}))
    message = f"{who} is attempting to grant RBAC permissions not currently held:\n{listed}"
    if not dangling:
        return message
    unresolved = [f"{resource}.{GROUP} {quoted(binding.role_ref.name)} not found" for binding in dangling]
    return f"{message}; resolution errors: [{joined(unresolved)}]"


def compacted(singles: Sequence[PolicyRule]) -> list[PolicyRule]:
    """Join permissions that differ only by verb into one rule each."""
    others: list[PolicyRule] = []
    by_resource: dict[tuple[Strings | None, Strings | None, Strings | None], list[str]] = {}
    for rule in singles:
        if rule.non_resource_urls:
            others.append(rule)
        else:
            key = (rule.api_groups, rule.resources, rule.resource_names)
            by_resource.setdefault(key, []).extend(rule.verbs or ())
    return others + [PolicyRule(tuple(verbs), *key) for key, verbs in by_resource.items()]


def _is_only_for_the_collector(new: dict[str, Any], old: dict[str, Any]) -> bool:
    return _without_collected(new) == _without_collected(old)


def _without_collected(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _LEFT_TO_THE_COLLECTOR}
    return {**obj, "metadata": metadata}
