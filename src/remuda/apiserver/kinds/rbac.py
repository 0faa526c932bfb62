"""The RBAC kinds. The authorizer, not this module, decides who may write which rule (escalation)."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.kinds.columns import AGE, NAME, PLAIN, Cell, at, string
from remuda.apiserver.kinds.declare import Rules, declare
from remuda.apiserver.resource import Obj
from remuda.kube import errors, names
from remuda.kube.errors import FieldError
from remuda.kube.selectors import validate_label_selector

GROUP = "rbac.authorization.k8s.io"


def _rule_errors(role: Obj, *, namespaced: bool) -> list[FieldError]:
    found: list[FieldError] = []
    for index, rule in enumerate(role.get("rules") or ()):
        found += _one_rule_errors(rule, f"rules[{index}]", namespaced=namespaced)
    return found


def _one_rule_errors(rule: Obj, path: str, *, namespaced: bool) -> list[FieldError]:
    found = []
    if not rule.get("verbs"):
        found.append(errors.required(f"{path}.verbs", "verbs must contain at least one value"))
    if urls := rule.get("nonResourceURLs"):
        where = f"{path}.nonResourceURLs"
        if namespaced:
            found.append(errors.invalid(where, urls, "namespaced rules cannot apply to non-resource URLs"))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            found.append(errors.invalid(where, urls, why))
        return found
    if not rule.get("apiGroups"):
        found.append(errors.required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        found.append(errors.required(f"{path}.resources", "resource rules must supply at least one resource"))
    return found


def _validate_cluster_role(role: Obj) -> list[FieldError]:
    found = _rule_errors(role, namespaced=False)
    aggregation = role.get("aggregationRule")
    if aggregation is None:
        return found
    path = "aggregationRule.clusterRoleSelectors"
    selectors = aggregation.get("clusterRoleSelectors") or ()
    if not selectors:
        why = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        found.append(errors.required(path, why))
    for index, selector in enumerate(selectors):
        found += validate_label_selector(selector, f"{path}[{index}]")
    return found


def _default_binding(binding: Obj) -> None:
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", GROUP)


def _binding_errors(binding: Obj, *, namespaced: bool) -> list[FieldError]:
    role = binding["roleRef"]
    found = []
    if role.get("apiGroup") != GROUP:
        found.append(errors.not_supported("roleRef.apiGroup", role.get("apiGroup"), (GROUP,)))
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    if role.get("kind") not in kinds:
        found.append(errors.not_supported("roleRef.kind", role.get("kind"), kinds))
    if not role.get("name"):
        found.append(errors.required("roleRef.name"))
    else:
        found += [errors.invalid("roleRef.name", role["name"], why) for why in names.path_segment(role["name"])]
    for index, subject in enumerate(binding.get("subjects") or ()):
        found += _subject_errors(subject, f"subjects[{index}]", namespaced=namespaced)
    return found


def _subject_errors(subject: Obj, path: str, *, namespaced: bool) -> list[FieldError]:
    name, group = subject.get("name") or "", subject.get("apiGroup") or ""
    found = [] if name else [errors.required(f"{path}.name")]
    match subject.get("kind"):
        case "ServiceAccount":
            if name:
                found += [errors.invalid(f"{path}.name", name, why) for why in names.subdomain_name(name)]
            if group:
                found.append(errors.not_supported(f"{path}.apiGroup", group, ("",)))
            if not namespaced and not subject.get("namespace"):
                found.append(errors.required(f"{path}.namespace"))
        case "User" | "Group":
            if group != GROUP:
                found.append(errors.not_supported(f"{path}.apiGroup", group, (GROUP,)))
        case other:
            found.append(errors.not_supported(f"{path}.kind", other, ("ServiceAccount", "User", "Group")))
    return found


def _validate_binding_update(new: Obj, old: Obj) -> list[FieldError]:
    if new["roleRef"] == old["roleRef"]:
        return []
    given = new["roleRef"]
    shown = {"APIGroup": given.get("apiGroup", ""), "Kind": given.get("kind", ""), "Name": given.get("name", "")}
    return [errors.invalid("roleRef", shown, "cannot change roleRef")]


def _subjects(kind: str) -> Cell:
    def cell(binding: Obj) -> str:
        chosen = [subject for subject in at(binding, "subjects", default=()) if subject.get("kind") == kind]
        return ", ".join(_subject_name(subject) for subject in chosen)

    return cell


def _subject_name(subject: Obj) -> str:
    name = str(subject.get("name", ""))
    if subject.get("kind") != "ServiceAccount":
        return name
    return f"{subject.get('namespace', '')}/{name}" if subject.get("namespace") else f"/{name}"


_BINDING_COLUMNS = (
    NAME,
    string("Role", lambda obj: f"{at(obj, 'roleRef', 'kind')}/{at(obj, 'roleRef', 'name')}"),
    AGE,
    string("Users", _subjects("User"), wide=True),
    string("Groups", _subjects("Group"), wide=True),
    string("ServiceAccounts", _subjects("ServiceAccount"), wide=True),
)
_SHARED: dict[str, Any] = {"has_generation": False, "allow_create_on_update": True}

ROLES = declare(
    GROUP,
    "v1",
    "Role",
    "roles",
    Rules(validate=lambda role: _rule_errors(role, namespaced=True), validate_name=names.path_segment),
    columns=PLAIN,
    **_SHARED,
)
CLUSTER_ROLES = declare(
    GROUP,
    "v1",
    "ClusterRole",
    "clusterroles",
    Rules(validate=_validate_cluster_role, validate_name=names.path_segment),
    namespaced=False,
    columns=PLAIN,
    **_SHARED,
)
ROLE_BINDINGS = declare(
    GROUP,
    "v1",
    "RoleBinding",
    "rolebindings",
    Rules(
        default=_default_binding,
        validate=lambda binding: _binding_errors(binding, namespaced=True),
        validate_update=_validate_binding_update,
        validate_name=names.path_segment,
    ),
    columns=_BINDING_COLUMNS,
    **_SHARED,
)
CLUSTER_ROLE_BINDINGS = declare(
    GROUP,
    "v1",
    "ClusterRoleBinding",
    "clusterrolebindings",
    Rules(
        default=_default_binding,
        validate=lambda binding: _binding_errors(binding, namespaced=False),
        validate_update=_validate_binding_update,
        validate_name=names.path_segment,
    ),
    namespaced=False,
    columns=_BINDING_COLUMNS,
    **_SHARED,
)

RESOURCES = (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES)
