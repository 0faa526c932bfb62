"""RBAC authorizer: decides whether a user may make a request.

Decisions come from `RbacIndex`, in memory, and are cached until any RBAC object changes. A cached decision covers all
names at once ("every name", or "these names"), so reading ten thousand objects one by one needs one decision. Members
of system:masters may do everything, whatever is stored. There are no explicit denials: requests that no rule allows are
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from remuda.apiserver.auth import messages
from remuda.apiserver.auth.rbac_index import TABLES, Binding, RbacIndex, RoleRef, role_key
from remuda.apiserver.auth.rules import PolicyRule
from remuda.apiserver.auth.user import MASTERS, Attributes, Decision, User
from remuda.apiserver.storage.types import Listener, StoreEntry, StoreEvent

# Limit of cached decisions, counted with the names in them; the oldest are dropped first.
_MOST_REMEMBERED = 20_000

_MASTER = Decision(allowed=True)


class RbacStore(Protocol):
    """Subset of `storage.protocol.Store` that RBAC needs."""

    def intact(self, table: str) -> Sequence[StoreEntry]: ...

    def subscribe(self, listener: Listener) -> Callable[[], None]: ...


class _Answer(NamedTuple):
    otherwise: Decision
    by_name: dict[str, Decision]


_Question = tuple[str, tuple[str, ...], str, str, str, str, str, str]


class RbacAuthorizer:
    """Implements `user.Authorizer`; keeps itself up to date from the store until `close`."""

    def __init__(self, store: RbacStore) -> None:
        self.generation = 0  # incremented by every change of an RBAC object
        self._index = RbacIndex()
        self._answers: dict[_Question, _Answer] = {}
        self._remembered = 0
        for table in TABLES:
            for entry in store.intact(table):
                self._index.put(entry)
        self.close = store.subscribe(self._on_events)

    def _on_events(self, events: Sequence[StoreEvent]) -> None:
        changed = False
        for event in events:
            if event.entry.table in TABLES:
                changed = True
                (self._index.drop if event.type == "DELETED" else self._index.put)(event.entry)
        if changed:
            self.generation += 1
            # Drop all decisions: one role or binding may concern any user.
            self._answers.clear()
            self._remembered = 0

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        if MASTERS in user.groups:
            return _MASTER
        a = attributes
        question = (user.name, user.groups, a.verb, a.group, a.resource, a.subresource, a.namespace, a.path)
        answer = self._answers.get(question)
        if answer is None:
            answer = self._path_answer(user, a) if a.path else self._resource_answer(user, a)
            self._remember(question, answer)
        if answer.by_name:
            return answer.by_name.get(a.name, answer.otherwise)
        return answer.otherwise

    def _remember(self, question: _Question, answer: _Answer) -> None:
        answers = self._answers
        answers[question] = answer
        self._remembered += 1 + len(answer.by_name)
        while self._remembered > _MOST_REMEMBERED and answers:
            oldest = answers.pop(next(iter(answers)))
            self._remembered -= 1 + len(oldest.by_name)

    def _resource_answer(self, user: User, a: Attributes) -> _Answer:
        by_name: dict[str, Decision] = {}
        problems: list[str] = []
        for binding in self._index.bindings_of(user, a.namespace):
            role = self._index.roles.get(binding.role_key)
            if role is None:
                problems.append(binding.missing_role())
                continue
            everything, names = role.scope(a.verb, a.group, a.resource, a.subresource)
            if everything:
                return _Answer(_allowed(binding.describe(user)), by_name)
            if names:
                decision = _allowed(binding.describe(user))
                for name in names:
                    by_name.setdefault(name, decision)
        return _Answer(_refused(problems), by_name)

    def _path_answer(self, user: User, a: Attributes) -> _Answer:
        problems: list[str] = []
        for binding in self._index.bindings_of(user, a.namespace):
            role = self._index.roles.get(binding.role_key)
            if role is None:
                problems.append(binding.missing_role())
            elif role.allows_path(a.verb, a.path):
                return _Answer(_allowed(binding.describe(user)), {})
        return _Answer(_refused(problems), {})

    def resolve(self, user: User, namespace: str) -> tuple[list[PolicyRule], list[Binding]]:
        """Return every rule that applies to the user there (including cluster-wide ones), and the bindings whose role
        is missing.
        """
        rules: list[PolicyRule] = []
        dangling: list[Binding] = []
        for binding in self._index.bindings_of(user, namespace):
            role = self._index.roles.get(binding.role_key)
            if role is None:
                dangling.append(binding)
            else:
                rules += role.rules
        return rules, dangling

    def rules_for(self, user: User, namespace: str) -> tuple[list[PolicyRule], str]:
        """Return the rules of `resolve`, and a message about unresolved bindings, empty if there are none."""
        rules, dangling = self.resolve(user, namespace)
        return rules, messages.joined([binding.missing_role() for binding in dangling]) if dangling else ""

    def role_rules(self, role_ref: RoleRef, namespace: str) -> tuple[PolicyRule, ...] | None:
        """Return the rules that a binding in this namespace (empty: a ClusterRoleBinding) grants; None if no role."""
        role = self._index.roles.get(role_key(role_ref, namespace))
        return role.rules if role is not None else None


def _allowed(source: str) -> Decision:
    return Decision(allowed=True, reason=f"RBAC: allowed by {source}")


def _refused(problems: list[str]) -> Decision:
    return Decision(allowed=False, reason=f"RBAC: {messages.joined(problems)}" if problems else "")
