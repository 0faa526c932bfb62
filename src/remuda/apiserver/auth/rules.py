"""Policy rules: the requests that one rule of a role allows, alone and compared with other rules.

A `PolicyRule` is the stored rule. A `CompiledRules` answers for all rules of one role: it indexes rules by resource, so
that a role with thousands of rules costs a request only the rules for its resource. Splitting rules into single
permissions multiplies their lists, so it is lazy and only used for escalation checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from remuda.apiserver import ApiServerError
from remuda.apiserver.auth.messages import quote_list

ALL = "*"

Strings = tuple[str, ...]


class PolicyRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    verbs: Strings | None = ()
    api_groups: Strings | None = ()
    resources: Strings | None = ()
    resource_names: Strings | None = ()
    non_resource_urls: Strings | None = msgspec.field(default=(), name="nonResourceURLs")

    def to_obj(self) -> dict[str, Any]:
        """Return the rule as JSON, without empty lists (except verbs)."""
        obj: dict[str, Any] = {"verbs": list(self.verbs or ())}
        for key, values in (
            ("apiGroups", self.api_groups),
            ("resources", self.resources),
            ("resourceNames", self.resource_names),
            ("nonResourceURLs", self.non_resource_urls),
        ):
            if values:
                obj[key] = list(values)
        return obj

    def compact(self) -> str:
        """Format the rule as escalation errors show it: `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`."""
        parts = (
            ("APIGroups", self.api_groups),
            ("Resources", self.resources),
            ("NonResourceURLs", self.non_resource_urls),
            ("ResourceNames", self.resource_names),
            ("Verbs", self.verbs),
        )
        return "{" + ", ".join(f"{name}:{quote_list(values)}" for name, values in parts if values) + "}"


def rules_from(objs: Sequence[Any] | None) -> tuple[PolicyRule, ...]:
    """Return the rules of a decoded (Cluster)Role. Raise msgspec.ValidationError if they are invalid."""
    return msgspec.convert(objs or (), tuple[PolicyRule, ...])


class _Grant(NamedTuple):
    verbs: frozenset[str]
    groups: frozenset[str]
    names: frozenset[str]  # empty: every name


class NameScope(NamedTuple):
    """Names that the rules allow for one verb on one resource: everything, or these names only."""

    everything: bool
    names: frozenset[str]


_EVERYTHING = NameScope(True, frozenset())
_NOTHING = NameScope(False, frozenset())


class CompiledRules:
    """Compiled rules of one role. Immutable."""

    __slots__ = ("_by_resource", "_url_prefixes", "_urls", "rules")

    def __init__(self, rules: Sequence[PolicyRule]) -> None:
        self.rules = tuple(rules)
        self._by_resource: dict[str, list[_Grant]] = {}
        self._urls: dict[str, list[frozenset[str]]] = {}
        self._url_prefixes: list[tuple[str, frozenset[str]]] = []
        for rule in rules:
            self._add(rule)

    def _add(self, rule: PolicyRule) -> None:
        verbs = frozenset(rule.verbs or ())
        grant = _Grant(verbs, frozenset(rule.api_groups or ()), frozenset(rule.resource_names or ()))
        for resource in rule.resources or ():
            self._by_resource.setdefault(resource, []).append(grant)
        for url in rule.non_resource_urls or ():
            self._urls.setdefault(url, []).append(verbs)
            if url.endswith(ALL):
                self._url_prefixes.append((url.rstrip(ALL), verbs))

    def scope(self, verb: str, group: str, resource: str, subresource: str) -> NameScope:
        names: set[str] = set()
        by_resource = self._by_resource
        keys = (f"{resource}/{subresource}", ALL, f"*/{subresource}") if subresource else (resource, ALL)
        for key in keys:
            for verbs, groups, only in by_resource.get(key, ()):
                if (verb in verbs or ALL in verbs) and (group in groups or ALL in groups):
                    if not only:
                        return _EVERYTHING
                    names |= only
        return NameScope(False, frozenset(names)) if names else _NOTHING

    def allows_path(self, verb: str, path: str) -> bool:
        for verbs in self._urls.get(path, ()):
            if verb in verbs or ALL in verbs:
                return True
        return any(path.startswith(prefix) and (verb in verbs or ALL in verbs) for prefix, verbs in self._url_prefixes)


def broken_down(rules: Iterable[PolicyRule]) -> Iterator[PolicyRule]:
    """Yield the same permissions as rules with one verb, one group, one resource and at most one name each."""
    for rule in rules:
        verbs = rule.verbs or ()
        for group in rule.api_groups or ():
            for resource in rule.resources or ():
                for verb in verbs:
                    for name in rule.resource_names or (None,):
                        names = () if name is None else (name,)
                        yield PolicyRule((verb,), (group,), (resource,), names)
        for url in rule.non_resource_urls or ():
            for verb in verbs:
                yield PolicyRule((verb,), non_resource_urls=(url,))


class Coverage:
    """Check whether a set of owner rules covers single permissions, as `broken_down` makes them.

    Covering is not the same as allowing: only `*` covers `*`, and only a rule without names covers another
    rule without names.
    """

    def __init__(self, owner: Sequence[PolicyRule]) -> None:
        self._by_resource: dict[str, list[_Grant]] = {}
        self._urls: list[tuple[str, frozenset[str]]] = []
        for rule in owner:
            verbs = frozenset(rule.verbs or ())
            grant = _Grant(verbs, frozenset(rule.api_groups or ()), frozenset(rule.resource_names or ()))
            for resource in rule.resources or ():
                self._by_resource.setdefault(resource, []).append(grant)
            # A rule limited to names covers no path: a permission without a name needs an owner without names.
            if not rule.resource_names:
                self._urls += [(url, verbs) for url in rule.non_resource_urls or ()]

    def covers(self, single: PolicyRule) -> bool:
        verb = (single.verbs or ("",))[0]
        if single.non_resource_urls:
            return self._covers_path(verb, single.non_resource_urls[0])
        group, resource = (single.api_groups or ("",))[0], (single.resources or ("",))[0]
        name = single.resource_names[0] if single.resource_names else None
        return any(self._grants(key, verb, group, name) for key in _covering_resources(resource))

    def _grants(self, resource: str, verb: str, group: str, name: str | None) -> bool:
        return any(
            (ALL in verbs or verb in verbs)
            and (ALL in groups or group in groups)
            and (not names or (name is not None and name in names))
            for verbs, groups, names in self._by_resource.get(resource, ())
        )

    def _covers_path(self, verb: str, path: str) -> bool:
        return any(
            (ALL in verbs or verb in verbs)
            and (url == path or (url.endswith(ALL) and path.startswith(url.rstrip(ALL))))
            for url, verbs in self._urls
        )


def _covering_resources(resource: str) -> Iterator[str]:
    yield ALL
    yield resource
    _, slash, subresource = resource.partition("/")
    if slash:
        yield f"*/{subresource}"


class TooManyPermissions(ApiServerError):
    """Rules whose lists multiply to more single permissions than the server is willing to check."""

    def __init__(self) -> None:
        super().__init__(f"the rules expand to more than {_MOST_PERMISSIONS} permissions")


def uncovered(owner: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return the single permissions in `wanted` that `owner` lacks; empty if it covers all.

    Raise TooManyPermissions. An administrator never meets this limit: a rule that one owner rule covers as a whole is
    not split.
    """
    open_rules = [rule for rule in wanted if not any(_covers_whole(have, rule) for have in owner)]
    if sum(map(_permissions, open_rules)) > _MOST_PERMISSIONS:
        raise TooManyPermissions
    coverage = Coverage(owner)
    return [single for single in broken_down(open_rules) if not coverage.covers(single)]


_MOST_PERMISSIONS = 50_000


def _permissions(rule: PolicyRule) -> int:
    named = len(rule.api_groups or ()) * len(rule.resources or ()) * (len(rule.resource_names or ()) or 1)
    return len(rule.verbs or ()) * (named + len(rule.non_resource_urls or ()))


def _covers_whole(have: PolicyRule, rule: PolicyRule) -> bool:
    if rule.non_resource_urls and not _holds(have.non_resource_urls, rule.non_resource_urls):
        return False
    if rule.resources and not (_holds(have.api_groups, rule.api_groups) and _holds(have.resources, rule.resources)):
        return False
    return not have.resource_names and _holds(have.verbs, rule.verbs)


def _holds(have: Strings | None, wanted: Strings | None) -> bool:
    return ALL in (have or ()) or set(wanted or ()) <= set(have or ())
