"""Impersonation: the Impersonate-* headers, and the permissions that they require.

Since Kubernetes 1.36 there are several modes, tried in order. The constrained modes (for the caller's own node, any
node, a service account, any other user) require two permissions: to impersonate that identity in that mode, and to make
this request on its behalf (`impersonate-on:<mode>:<verb>`). The legacy mode requires `impersonate` on each part of the
identity and then allows every request. A refusal shows the error of the first mode, or of the mode that last worked for
the same user. The impersonated user replaces the caller completely.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from urllib.parse import unquote

import msgspec

from remuda.apiserver.auth.messages import forbidden
from remuda.apiserver.auth.user import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    UNAUTHENTICATED,
    Attributes,
    Authorizer,
    Headers,
    User,
    header_text,
    service_account_groups,
    split_service_account,
    with_group,
)
from remuda.kube import errors, names
from remuda.kube.go_text import quoted

GROUP = "authentication.k8s.io"
NODES = "system:nodes"
_NODE_PREFIX = "system:node:"
_NODE_NAME_KEY = "authentication.kubernetes.io/node-name"
_EXTRA_PREFIX = "impersonate-extra-"
# From this number of parts on, a permission for all of them at once is checked first.
_MANY = 4
_MOST_REMEMBERED = 10_000


def wanted_user(headers: Headers) -> User | None:
    """Return the user that the Impersonate-* headers ask for, unchanged; None without headers. Raises BadRequest."""
    if not any(name.startswith("impersonate-") for name in headers):
        return None
    name = _first(headers, "impersonate-user")
    uid = _first(headers, "impersonate-uid")
    groups = tuple(map(header_text, headers.get("impersonate-group", ())))
    extra: dict[str, tuple[str, ...]] = {}
    for header, values in headers.items():
        if header.startswith(_EXTRA_PREFIX) and values:
            key = _unescaped(header[len(_EXTRA_PREFIX) :].lower())
            extra[key] = (*extra.get(key, ()), *map(header_text, values))
    if name:
        return User(name, uid, groups, extra)
    if uid or groups or extra:
        raise errors.bad_request(f"requested {_described(uid, groups, extra)} without impersonating a user name")
    return None


def _first(headers: Headers, name: str) -> str:
    values = headers.get(name)
    return header_text(values[0]) if values else ""


def _unescaped(key: str) -> str:
    """Return the percent-decoded value, or the value unchanged if the result is not text."""
    try:
        return unquote(key, errors="strict")
    except UnicodeDecodeError:
        return key


def _described(uid: str, groups: tuple[str, ...], extra: dict[str, tuple[str, ...]]) -> str:
    """Format the user as a Go program prints this struct, because clients have always seen that."""
    shown_groups = f"[]string{_braced(groups)}" if groups else "[]string(nil)"
    pairs = ", ".join(f"{quoted(key)}:[]string{_braced(extra[key])}" for key in sorted(extra))
    shown_extra = f"map[string][]string{{{pairs}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:{quoted(uid)}, Groups:{shown_groups}, Extra:{shown_extra}}}'


def _braced(values: tuple[str, ...]) -> str:
    return "{" + ", ".join(quoted(value) for value in values) + "}"


def _node_name(username: str) -> str:
    name = username.removeprefix(_NODE_PREFIX)
    return name if name != username and not names.dns1123_subdomain(name) else ""


def _is_bare(user: User) -> bool:
    return not (user.uid or user.groups or user.extra)


def _is_own_node(wanted: User, requestor: User) -> bool:
    node = _node_name(wanted.name)
    is_account = split_service_account(requestor.name) is not None
    return bool(node) and _is_bare(wanted) and is_account and requestor.extra.get(_NODE_NAME_KEY) == (node,)


def _is_any_node(wanted: User, requestor: User) -> bool:
    return _is_bare(wanted) and bool(_node_name(wanted.name))


def _is_account(wanted: User, requestor: User) -> bool:
    return _is_bare(wanted) and split_service_account(wanted.name) is not None


def _is_other(wanted: User, requestor: User) -> bool:
    return not _node_name(wanted.name) and split_service_account(wanted.name) is None


class _Mode:
    """Mode of impersonation. `name` is empty for the legacy mode, which is not constrained to the request."""

    def __init__(self, name: str, applies: Callable[[User, User], bool]) -> None:
        self.name = name
        self.applies = applies
        self.verb = f"impersonate:{name}" if name else "impersonate"
        self._identity_group = GROUP if name else ""

    def questions(self, wanted: User, request: Attributes) -> Iterator[Attributes]:
        """Yield every required permission. The check asks for all of them, one after the other."""
        if self.name:
            verb = f"impersonate-on:{self.name}:{request.verb}"
            yield msgspec.structs.replace(request, verb=verb)
        yield self._identity(wanted.name)
        if wanted.uid:
            yield self._about("uids", wanted.uid)

    def _identity(self, username: str) -> Attributes:
        group = self._identity_group
        if self.name and (node := _node_name(username)):
            # A permission for the caller's own node does not depend on which node that is.
            name = "*" if self.name == "associated-node" else node
            return Attributes(verb=self.verb, group=group, version="v1", resource="nodes", name=name)
        account = split_service_account(username)
        if account is None:
            return Attributes(verb=self.verb, group=group, version="v1", resource="users", name=username)
        namespace, name = account
        return Attributes(
            verb=self.verb, group=group, version="v1", resource="serviceaccounts", namespace=namespace, name=name
        )

    def _about(self, resource: str, name: str, subresource: str = "") -> Attributes:
        return Attributes(
            verb=self.verb, group=GROUP, version="v1", resource=resource, subresource=subresource, name=name
        )

    def groups(self, wanted: User) -> list[Attributes]:
        group = self._identity_group
        return [Attributes(verb=self.verb, group=group, version="v1", resource="groups", name=g) for g in wanted.groups]

    def extras(self, wanted: User) -> list[Attributes]:
        return [self._about("userextras", value, key) for key, values in wanted.extra.items() for value in values]

    def identity(self, wanted: User) -> User:
        """Return the impersonated user, with the groups of its kind unless the request names groups."""
        groups = wanted.groups
        if self.name and _node_name(wanted.name):
            groups = (NODES,)
        elif not groups and (account := split_service_account(wanted.name)) is not None:
            groups = service_account_groups(account[0])
        user = User(wanted.name, wanted.uid, groups, wanted.extra)
        if user.name == ANONYMOUS:
            return user if UNAUTHENTICATED in groups else with_group(user, UNAUTHENTICATED)
        return user if UNAUTHENTICATED in groups or AUTHENTICATED in groups else with_group(user, AUTHENTICATED)


_MODES = (
    _Mode("associated-node", _is_own_node),
    _Mode("arbitrary-node", _is_any_node),
    _Mode("serviceaccount", _is_account),
    _Mode("user-info", _is_other),
    _Mode("", lambda wanted, requestor: True),
)


class Impersonation:
    """Checks and performs impersonation with one authorizer."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._last_mode: OrderedDict[str, _Mode] = OrderedDict()

    def apply(self, user: User, headers: Headers, request: Attributes) -> User:
        """Return the user that this request runs as: `user` itself without the headers. Raise Forbidden, BadRequest."""
        wanted = wanted_user(headers)
        if wanted is None:
            return user
        refusal: errors.StatusError | None = None
        for mode in self._in_order(user.name):
            if not mode.applies(wanted, user):
                continue
            try:
                self._check(mode, user, wanted, request)
            except errors.StatusError as problem:
                refusal = refusal or problem
                continue
            self._remember(user.name, mode)
            return mode.identity(wanted)
        raise refusal or errors.internal("all impersonation modes failed")

    def _in_order(self, username: str) -> list[_Mode]:
        last = self._last_mode.get(username)
        return [last, *(mode for mode in _MODES if mode is not last)] if last is not None else list(_MODES)

    def _remember(self, username: str, mode: _Mode) -> None:
        self._last_mode[username] = mode
        self._last_mode.move_to_end(username)
        if len(self._last_mode) > _MOST_REMEMBERED:
            self._last_mode.popitem(last=False)

    def _check(self, mode: _Mode, user: User, wanted: User, request: Attributes) -> None:
        asking = _without_node(user) if mode.name == "associated-node" else user
        for question in mode.questions(wanted, request):
            self._require(asking, question)
        if mode.name:
            _sane_groups(mode, asking, wanted)
        self._require_each(mode, asking, mode.groups(wanted), "")
        if mode.name:
            _sane_extra(mode, asking, wanted)
        self._require_each(mode, asking, mode.extras(wanted), "*")

    def _require(self, user: User, question: Attributes) -> None:
        decision = self._authorizer.authorize(user, question)
        if not decision.allowed:
            raise forbidden(user, question, decision.reason)

    def _require_each(self, mode: _Mode, user: User, questions: list[Attributes], any_subresource: str) -> None:
        if mode.name and len(questions) >= _MANY:
            every = msgspec.structs.replace(questions[0], name="*", subresource=any_subresource)
            if self._authorizer.authorize(user, every).allowed:
                return
        for question in questions:
            self._require(user, question)


def _without_node(user: User) -> User:
    """Return the caller as the permission for its own node sees it: the keys that it has, not their values."""
    extra = {"authentication.kubernetes.io/associated-node-keys": tuple(sorted(user.extra))}
    return User(user.name, user.uid, user.groups, extra)


def _sane_groups(mode: _Mode, user: User, wanted: User) -> None:
    if "" in wanted.groups:
        question = Attributes(verb=mode.verb, group=GROUP, version="v1", resource="groups")
        raise forbidden(user, question, "impersonating the empty string group is not allowed")
    # The authorizer allows this group everything, so a constrained mode must not give it.
    if MASTERS in wanted.groups:
        question = Attributes(verb=mode.verb, group=GROUP, version="v1", resource="groups", name=MASTERS)
        raise forbidden(user, question, "impersonating the system:masters group is not allowed")


def _sane_extra(mode: _Mode, user: User, wanted: User) -> None:
    question = Attributes(verb=mode.verb, group=GROUP, version="v1", resource="userextras")
    for key, values in wanted.extra.items():
        problem = _extra_problem(key, values)
        if problem:
            raise forbidden(user, question, problem)


def _extra_problem(key: str, values: tuple[str, ...]) -> str:
    if not key:
        return "impersonating the empty string key in extra is not allowed"
    domain, _, path = key.partition("/")
    if not domain or not path:
        complaint = errors.invalid("extra.key", key, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return f"impersonating an invalid key in extra is not allowed: {complaint}"
    complaints = [errors.invalid("extra.key", domain, text) for text in names.dns1123_subdomain(domain)]
    if complaints:
        return f"impersonating an invalid key in extra is not allowed: {complaints[0]}"
    if key != key.lower():
        return f"impersonating a non-lowercase key in extra is not allowed: {quoted(key)}"
    if "" in values:
        return "impersonating the empty string value in extra is not allowed"
    return ""
