"""Default roles and bindings: created at the first start, repaired at every later one.

A repair only adds what is missing (permissions, subjects, labels) and keeps additions by users. Objects annotated
`rbac.authorization.kubernetes.io/autoupdate: "false"` are not changed. Pure: the caller reads and writes. Upkeep fills
in the rules of the aggregated roles (admin, edit, view).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from functools import cache
from typing import Any, Literal, NamedTuple

from remuda.apiserver.auth import bootstrap_roles as data
from remuda.apiserver.auth import rbac_index as tables
from remuda.apiserver.auth.rules import PolicyRule, rules_from, uncovered

Obj = dict[str, Any]

GROUP = tables.GROUP
AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_AGGREGATE = f"{GROUP}/aggregate-to-"
_CONTROLLER = "system:controller:"
_VERBS = {"read": ("get", "list", "watch"), "write": ("create", "delete", "deletecollection", "patch", "update")}
_EVENTS = "create,patch,update core,events.k8s.io: events"


class Default(NamedTuple):
    """Default object and its storage location."""

    table: str
    obj: Obj


class Change(NamedTuple):
    """Change to write. `recreate`: delete the existing object, then create. `obj` is the object to write; it is a
    private copy.
    """

    operation: Literal["create", "update", "recreate"]
    table: str
    obj: Obj


def needed_changes(
    lookup: Callable[[str, str, str], Obj | None], *, damaged: Container[tuple[str, str, str]] = ()
) -> list[Change]:
    """Return the changes to write now, in order. `lookup` maps (table, namespace, name) to the stored object or None;
    keys in `damaged` cannot be looked up.
    """
    changes = []
    for table, expected in defaults():
        metadata = expected["metadata"]
        key = (table, metadata.get("namespace", ""), metadata["name"])
        if key in damaged:
            continue
        existing = lookup(*key)
        change = reconcile(table, existing, expected)
        if change is not None:
            changes.append(change)
    return changes


def reconcile(table: str, existing: Obj | None, expected: Obj) -> Change | None:
    """Return the change that repairs one object; None if there is nothing to do."""
    if existing is None:
        return Change("create", table, _copied(expected))
    if (existing["metadata"].get("annotations") or {}).get(AUTO_UPDATE) == "false":
        return None
    # The roleRef of a binding is immutable, so a wrong one can only be replaced with its binding.
    if "roleRef" in expected and existing.get("roleRef") != expected["roleRef"]:
        return Change("recreate", table, _copied(expected))
    mended = _copied(existing)
    for key in ("labels", "annotations"):
        mended["metadata"][key] = {**(expected["metadata"].get(key) or {}), **(existing["metadata"].get(key) or {})}
    (_mend_binding if "roleRef" in expected else _mend_role)(mended, expected)
    return None if mended == existing else Change("update", table, mended)


def _copied(obj: Obj) -> Obj:
    """Return a copy that is deep enough: metadata is then replaced key by key, everything else as a whole."""
    return {**obj, "metadata": dict(obj["metadata"])}


def _mend_role(mended: Obj, expected: Obj) -> None:
    missing = uncovered(rules_from(mended.get("rules")), rules_from(expected.get("rules")))
    if missing:
        mended["rules"] = [*(mended.get("rules") or ()), *(rule.to_obj() for rule in missing)]
    wanted = (expected.get("aggregationRule") or {}).get("clusterRoleSelectors")
    if wanted is None:
        mended.pop("aggregationRule", None)
        return
    present = (mended.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    absent = [selector for selector in wanted if selector not in present]
    if absent:
        mended["aggregationRule"] = {"clusterRoleSelectors": [*present, *absent]}


def _mend_binding(mended: Obj, expected: Obj) -> None:
    present = mended.get("subjects") or []
    absent = [subject for subject in expected.get("subjects") or () if subject not in present]
    if absent:
        mended["subjects"] = [*present, *absent]


# ---- from the data to objects ------------------------------------------------------------------------------------


@cache
def defaults() -> tuple[Default, ...]:
    """Return every default object, roles before the bindings that refer to them. The objects are shared: do not change
    them.
    """
    return (*_cluster_roles(), *_cluster_bindings(), *_namespaced())


def _cluster_roles() -> Iterator[Default]:
    for name, rules in _parsed(data.CLUSTER_ROLES):
        yield Default(tables.CLUSTER_ROLES, _role(name, rules, _labels(data.AGGREGATED_INTO.get(name, ""))))
    for name, (collects, collected_into) in data.AGGREGATED.items():
        role = _role(name, None, _labels(collected_into))
        role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {_AGGREGATE + collects: "true"}}]}
        yield Default(tables.CLUSTER_ROLES, role)
    for name, rules in _parsed(data.CONTROLLERS):
        yield Default(tables.CLUSTER_ROLES, _role(_CONTROLLER + name, rules, {}))


def _labels(collected_into: str) -> dict[str, str]:
    return {_AGGREGATE + collected_into: "true"} if collected_into else {}


def _cluster_bindings() -> Iterator[Default]:
    for name, subjects in data.CLUSTER_BINDINGS.items():
        yield Default(tables.CLUSTER_ROLE_BINDINGS, _binding("", name, "ClusterRole", name, subjects))
    for name, _ in _parsed(data.CONTROLLERS):
        subjects = (f"ServiceAccount kube-system/{name}",)
        role = _CONTROLLER + name
        yield Default(tables.CLUSTER_ROLE_BINDINGS, _binding("", role, "ClusterRole", role, subjects))


def _namespaced() -> Iterator[Default]:
    for namespace, text in data.ROLES.items():
        for name, rules in _parsed(text):
            yield Default(tables.ROLES, _role(name, rules, {}, namespace))
    for (namespace, name, role), subjects in data.BINDINGS.items():
        yield Default(tables.ROLE_BINDINGS, _binding(namespace, name, "Role", role, subjects))


def _role(name: str, rules: list[PolicyRule] | None, labels: dict[str, str], namespace: str = "") -> Obj:
    role = _object("Role" if namespace else "ClusterRole", name, namespace, labels)
    role["rules"] = None if rules is None else [rule.to_obj() for rule in rules]
    return role


def _binding(namespace: str, name: str, role_kind: str, role: str, subjects: Iterable[str]) -> Obj:
    binding = _object("RoleBinding" if namespace else "ClusterRoleBinding", name, namespace, {})
    binding["roleRef"] = {"apiGroup": GROUP, "kind": role_kind, "name": role}
    binding["subjects"] = [_subject(text) for text in subjects]
    return binding


def _object(kind: str, name: str, namespace: str, labels: dict[str, str]) -> Obj:
    metadata: Obj = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    metadata["labels"] = {"kubernetes.io/bootstrapping": "rbac-defaults", **labels}
    metadata["annotations"] = {AUTO_UPDATE: "true"}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}


def _subject(text: str) -> Obj:
    kind, _, name = text.partition(" ")
    if kind == "ServiceAccount":
        namespace, _, name = name.partition("/")
        return {"kind": kind, "name": name, "namespace": namespace}
    return {"kind": kind, "apiGroup": GROUP, "name": name}


def _parsed(text: str) -> Iterator[tuple[str, list[PolicyRule]]]:
    name, rules = "", list[PolicyRule]()
    for line in text.replace("\n      ", " ").splitlines():
        if line.startswith(" "):
            rules.append(_rule(line.strip()))
            continue
        if name:
            yield name, rules
        name, rules = line, []
    yield name, rules


def _rule(line: str) -> PolicyRule:
    verbs_word, _, rest = (_EVENTS if line == "events" else line).partition(" ")
    verbs = tuple(sorted(verb for word in verbs_word.split(",") for verb in _VERBS.get(word, (word,))))
    groups, colon, resources = rest.partition(": ")
    if not colon:
        return PolicyRule(verbs, non_resource_urls=tuple(rest.split()))
    wanted, _, names = resources.partition(" = ")
    api_groups = tuple("" if group == "core" else group for group in groups.split(","))
    return PolicyRule(verbs, api_groups, tuple(wanted.split()), tuple(names.split()))
