"""Index of RBAC bindings and roles: the stored RBAC objects, kept up to date by the store's events.

Bindings are found by namespace and subject, so a request reads only the bindings of its own user and groups, however
many others there are. An object that cannot be read grants nothing. The index is never behind an acknowledged write
because the store calls listeners first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec

from remuda.apiserver.auth.rules import CompiledRules, PolicyRule
from remuda.apiserver.auth.user import User, service_account_username
from remuda.apiserver.storage.types import StoreEntry
from remuda.kube.go_text import quoted

GROUP = "rbac.authorization.k8s.io"
ROLES = f"roles.{GROUP}"
ROLE_BINDINGS = f"rolebindings.{GROUP}"
CLUSTER_ROLES = f"clusterroles.{GROUP}"
CLUSTER_ROLE_BINDINGS = f"clusterrolebindings.{GROUP}"
TABLES = (ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)

_log = logging.getLogger(__name__)


class RbacSubject(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str | None = ""


class RoleRef(msgspec.Struct, frozen=True, rename="camel"):
    api_group: str | None = ""
    kind: str = ""
    name: str = ""


class _StoredRole(msgspec.Struct):
    rules: tuple[PolicyRule, ...] | None = None


class _StoredBinding(msgspec.Struct, rename="camel"):
    role_ref: RoleRef
    subjects: tuple[RbacSubject, ...] | None = None


_decode_role = msgspec.json.Decoder(_StoredRole).decode
_decode_binding = msgspec.json.Decoder(_StoredBinding).decode


# (kind, namespace, name). The kind is part of it: a ClusterRoleBinding must not reach a ClusterRole as a "Role".
RoleKey = tuple[str, str, str]


def role_key(ref: RoleRef, binding_namespace: str) -> RoleKey:
    """Return the key in `RbacIndex.roles` of the role that a binding refers to."""
    return (ref.kind, binding_namespace if ref.kind == "Role" else "", ref.name)


def _entry_key(entry: StoreEntry) -> RoleKey:
    return ("Role" if entry.table == ROLES else "ClusterRole", entry.namespace, entry.name)


class Binding:
    """(Cluster)RoleBinding; `namespace` is empty for a ClusterRoleBinding."""

    __slots__ = ("groups", "name", "namespace", "role_ref", "subjects", "users")

    def __init__(self, namespace: str, name: str, role_ref: RoleRef, subjects: tuple[RbacSubject, ...]) -> None:
        self.namespace = namespace
        self.name = name
        self.role_ref = role_ref
        self.subjects = subjects
        named = [(subject, self._username(subject)) for subject in subjects]
        self.users = frozenset(username for _, username in named if username is not None)
        self.groups = frozenset(subject.name for subject in subjects if subject.kind == "Group")

    def _username(self, subject: RbacSubject) -> str | None:
        if subject.kind == "User":
            return subject.name
        if subject.kind == "ServiceAccount" and (namespace := subject.namespace or self.namespace):
            return service_account_username(namespace, subject.name)
        return None

    @property
    def role_key(self) -> RoleKey:
        return role_key(self.role_ref, self.namespace)

    def missing_role(self) -> str:
        """Return the message for a binding whose role does not exist."""
        if self.role_ref.kind not in ("Role", "ClusterRole"):
            return f"unsupported role reference kind: {quoted(self.role_ref.kind)}"
        return f"{self.role_ref.kind.lower()}.{GROUP} {quoted(self.role_ref.name)} not found"

    def describe(self, user: User) -> str:
        """Describe the binding by its first subject that is this user: `ClusterRoleBinding "x" of ClusterRole "y" to
        User "z"`.
        """
        kind = "RoleBinding" if self.namespace else "ClusterRoleBinding"
        name = f"{self.name}/{self.namespace}" if self.namespace else self.name
        subject = next(subject for subject in self.subjects if self._applies(subject, user))
        who = subject.name
        if subject.kind == "ServiceAccount":
            who = f"{who}/{subject.namespace or self.namespace}"
        role = f"{self.role_ref.kind} {quoted(self.role_ref.name)}"
        return f"{kind} {quoted(name)} of {role} to {subject.kind} {quoted(who)}"

    def _applies(self, subject: RbacSubject, user: User) -> bool:
        if subject.kind == "Group":
            return subject.name in user.groups
        return self._username(subject) == user.name


class _Scope:
    """Bindings of one namespace, or of the cluster."""

    __slots__ = ("by_group", "by_name", "by_user")

    def __init__(self) -> None:
        self.by_name: dict[str, Binding] = {}
        self.by_user: dict[str, dict[str, Binding]] = {}
        self.by_group: dict[str, dict[str, Binding]] = {}

    def put(self, binding: Binding) -> None:
        self.drop(binding.name)
        self.by_name[binding.name] = binding
        for user in binding.users:
            self.by_user.setdefault(user, {})[binding.name] = binding
        for group in binding.groups:
            self.by_group.setdefault(group, {})[binding.name] = binding

    def drop(self, name: str) -> None:
        binding = self.by_name.pop(name, None)
        if binding is None:
            return
        for index, keys in ((self.by_user, binding.users), (self.by_group, binding.groups)):
            for key in keys:
                bindings = index[key]
                del bindings[name]
                if not bindings:
                    del index[key]

    def bindings_of(self, user: User) -> Iterator[Binding]:
        """Yield each binding once, even if it names a user and several of their groups."""
        mine = self.by_user.get(user.name)
        if mine is not None:
            yield from mine.values()
        by_group = self.by_group
        for position, group in enumerate(user.groups):
            for binding in by_group.get(group, {}).values():
                if user.name not in binding.users and binding.groups.isdisjoint(user.groups[:position]):
                    yield binding


class RbacIndex:
    """Roles by their key, and bindings by subject."""

    def __init__(self) -> None:
        self.roles: dict[RoleKey, CompiledRules] = {}
        self._cluster = _Scope()
        self._namespaces: dict[str, _Scope] = {}

    def put(self, entry: StoreEntry) -> None:
        try:
            if entry.table in (ROLES, CLUSTER_ROLES):
                self.roles[_entry_key(entry)] = CompiledRules(_decode_role(entry.value).rules or ())
            else:
                stored = _decode_binding(entry.value)
                binding = Binding(entry.namespace, entry.name, stored.role_ref, stored.subjects or ())
                self._scope(entry.namespace).put(binding)
        except (msgspec.MsgspecError, RecursionError) as problem:
            _log.warning("%s %s/%s grants nothing: %s", entry.table, entry.namespace, entry.name, problem)
            # Dropped, so that an unreadable object does not keep the rights of its previous version.
            self.drop(entry)

    def drop(self, entry: StoreEntry) -> None:
        if entry.table in (ROLES, CLUSTER_ROLES):
            self.roles.pop(_entry_key(entry), None)
            return
        scope = self._scope(entry.namespace)
        scope.drop(entry.name)
        if entry.namespace and not scope.by_name:
            del self._namespaces[entry.namespace]

    def _scope(self, namespace: str) -> _Scope:
        if not namespace:
            return self._cluster
        scope = self._namespaces.get(namespace)
        if scope is None:
            scope = self._namespaces[namespace] = _Scope()
        return scope

    def bindings_of(self, user: User, namespace: str) -> Iterator[Binding]:
        """Yield the user's bindings: those of the cluster first, then those of the namespace."""
        yield from self._cluster.bindings_of(user)
        if namespace and (scope := self._namespaces.get(namespace)) is not None:
            yield from scope.bindings_of(user)
