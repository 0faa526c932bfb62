from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.auth.impersonate import Impersonation, wanted_user
from remuda.apiserver.auth.rbac import RbacAuthorizer
from remuda.apiserver.auth.user import Attributes, User
from remuda.kube.errors import StatusError

from .fakes import RbacStore, rule, user_subject

JANE = User("jane", "1", ("dev", "system:authenticated"), {"k": ("v",)})
ADMIN = User("admin", groups=("system:masters", "system:authenticated"))
LIST_PODS = Attributes(verb="list", version="v1", resource="pods", namespace="default")
AUTHENTICATION = "authentication.k8s.io"


def headers(user: str = "", *groups: str, **more: str) -> dict[str, list[str]]:
    made = {name.replace("_", "-"): [value] for name, value in more.items()}
    if user:
        made["impersonate-user"] = [user]
    if groups:
        made["impersonate-group"] = list(groups)
    return made


class Lab:
    def __init__(self) -> None:
        self.store = RbacStore()
        self.impersonation = Impersonation(RbacAuthorizer(self.store))

    def allow(self, *rules: dict[str, Any], who: str = "jane") -> None:
        self.store.cluster_role("imp", *rules)
        self.store.bind_cluster("imp", "imp", user_subject(who))

    def apply(self, given: dict[str, list[str]], user: User = JANE, request: Attributes = LIST_PODS) -> User:
        return self.impersonation.apply(user, given, request)

    def refusal(self, given: dict[str, list[str]], user: User = JANE, request: Attributes = LIST_PODS) -> str:
        with pytest.raises(StatusError) as caught:
            self.apply(given, user, request)
        return caught.value.message


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_request_without_impersonation_headers_keeps_user(lab: Lab) -> None:
    assert lab.apply({"accept": ["*/*"]}) is JANE
    assert lab.apply({"impersonate-user": [""]}) is JANE


def test_first_impersonation_denial_names_constrained_request_verb(lab: Lab) -> None:
    where = 'resource "pods" in API group "" in the namespace "default"'
    for name, mode in (
        ("bob", "user-info"),
        ("system:serviceaccount:default:robot", "serviceaccount"),
        ("system:node:n1", "arbitrary-node"),
    ):
        expected = f'pods is forbidden: User "jane" cannot impersonate-on:{mode}:list {where}'
        assert lab.refusal(headers(name)) == expected
    health = Attributes(verb="get", path="/healthz")
    assert lab.refusal(headers("bob"), request=health) == (
        'forbidden: User "jane" cannot impersonate-on:user-info:get path "/healthz"'
    )


@pytest.mark.parametrize(
    ("given", "described"),
    [
        (
            headers("", "bob"),
            '&user.DefaultInfo{Name:"", UID:"", Groups:[]string{"bob"}, Extra:map[string][]string(nil)}',
        ),
        (
            {"impersonate-uid": ["b"], "impersonate-extra-scopes": ["a", "b"]},
            '&user.DefaultInfo{Name:"", UID:"b", Groups:[]string(nil), '
            'Extra:map[string][]string{"scopes":[]string{"a", "b"}}}',
        ),
    ],
)
def test_impersonation_without_user_name_returns_400(lab: Lab, given: dict[str, list[str]], described: str) -> None:
    with pytest.raises(StatusError) as caught:
        lab.apply(given, ADMIN)
    assert caught.value.code == 400
    assert caught.value.message == f"requested {described} without impersonating a user name"


def test_impersonate_verb_allows_unconstrained_impersonation(lab: Lab) -> None:
    lab.allow(rule("impersonate", "users", names="bob"))
    bob = lab.apply(headers("bob"))
    assert bob == User("bob", "", ("system:authenticated",), {})


def test_impersonated_user_group_extra_and_uid_each_need_permission(lab: Lab) -> None:
    lab.allow(rule("impersonate", "users", names="bob"))
    lab.apply(headers("bob"))  # from now on the old mode's refusals are shown
    scope = "at the cluster scope"
    assert lab.refusal(headers("carl")) == (
        f'users "carl" is forbidden: User "jane" cannot impersonate resource "users" in API group "" {scope}'
    )
    assert lab.refusal(headers("bob", "g")) == (
        f'groups "g" is forbidden: User "jane" cannot impersonate resource "groups" in API group "" {scope}'
    )
    assert lab.refusal(headers("bob", impersonate_extra_scopes="a")) == (
        f'userextras.{AUTHENTICATION} "a" is forbidden: User "jane" cannot impersonate resource '
        f'"userextras/scopes" in API group "{AUTHENTICATION}" {scope}'
    )
    assert lab.refusal(headers("bob", impersonate_uid="7")) == (
        f'uids.{AUTHENTICATION} "7" is forbidden: User "jane" cannot impersonate resource "uids" in API group '
        f'"{AUTHENTICATION}" {scope}'
    )


def test_user_uid_groups_and_extra_are_impersonated_together(lab: Lab) -> None:
    lab.allow(
        rule("impersonate", "users,groups"),
        rule("impersonate", "uids,userextras/acme.io/foo", AUTHENTICATION),
    )
    given = {**headers("bob", "g1", "g2", impersonate_uid="7"), "impersonate-extra-acme.io%2ffoo": ["x", "y"]}
    assert lab.apply(given) == User("bob", "7", ("g1", "g2", "system:authenticated"), {"acme.io/foo": ("x", "y")})


def test_service_account_impersonation_needs_namespaced_permission(lab: Lab) -> None:
    lab.store.role("ns", "r", rule("impersonate", "serviceaccounts", names="robot"))
    lab.store.bind("ns", "b", "r", user_subject("jane"))
    robot = lab.apply(headers("system:serviceaccount:ns:robot"))
    assert robot.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    assert robot.extra == {}
    lab.refusal(headers("system:serviceaccount:other:robot"))


def test_impersonated_groups_replace_service_account_groups(lab: Lab) -> None:
    robot = lab.apply(headers("system:serviceaccount:ns:robot", "g"), ADMIN)
    assert robot.groups == ("g", "system:authenticated")


@pytest.mark.parametrize(
    ("name", "groups", "result"),
    [
        ("system:anonymous", (), ("system:unauthenticated",)),
        ("system:anonymous", ("system:unauthenticated",), ("system:unauthenticated",)),
        ("bob", ("system:unauthenticated",), ("system:unauthenticated",)),
        ("bob", ("system:authenticated", "g"), ("system:authenticated", "g")),
        ("bob", ("g", "system:masters"), ("g", "system:masters", "system:authenticated")),
        ("system:node:n1", (), ("system:nodes", "system:authenticated")),
        ("system:node:N1", (), ("system:authenticated",)),
    ],
)
def test_impersonated_user_gets_implicit_groups(
    lab: Lab, name: str, groups: tuple[str, ...], result: tuple[str, ...]
) -> None:
    assert lab.apply(headers(name, *groups), ADMIN).groups == result


# ---- constrained modes --------------------------------------------------------------------------------------------


def test_constrained_impersonation_is_limited_to_permitted_requests(lab: Lab) -> None:
    lab.allow(
        rule("impersonate:user-info", "users", AUTHENTICATION, names="bob"),
        rule("impersonate-on:user-info:list", "pods"),
    )
    assert lab.apply(headers("bob")).name == "bob"
    deletion = Attributes(verb="delete", resource="pods", namespace="default")
    assert "cannot impersonate-on:user-info:delete" in lab.refusal(headers("bob"), request=deletion)
    assert lab.refusal(headers("carl")).startswith(f'users.{AUTHENTICATION} "carl" is forbidden')
    lab.refusal(headers("system:serviceaccount:ns:robot"))


def test_constrained_impersonation_rejects_system_masters_and_empty_values(lab: Lab) -> None:
    lab.allow(
        rule("impersonate:user-info", "*", "*"),
        rule("impersonate-on:user-info:list", "pods"),
    )
    assert lab.apply(headers("bob", "a", "b", "c", "d")).groups[:4] == ("a", "b", "c", "d")
    assert "impersonating the system:masters group is not allowed" in lab.refusal(headers("bob", "system:masters"))
    assert "impersonating the empty string group is not allowed" in lab.refusal(headers("bob", ""))
    assert "domain-prefixed path" in lab.refusal(headers("bob", impersonate_extra_scopes="a"))
    assert "impersonating the empty string value" in lab.refusal({**headers("bob"), "impersonate-extra-a.b/c": [""]})
    assert "empty string key" in lab.refusal({**headers("bob"), "impersonate-extra-": ["x"]})
    assert lab.apply({**headers("bob"), "impersonate-extra-a.b/c": ["x"]}).extra == {"a.b/c": ("x",)}


def test_wildcard_resource_name_permits_impersonating_many_groups(lab: Lab) -> None:
    lab.allow(
        rule("impersonate:user-info", "users", AUTHENTICATION),
        rule("impersonate:user-info", "groups", AUTHENTICATION, names="*"),
        rule("impersonate-on:user-info:list", "pods"),
    )
    assert len(lab.apply(headers("bob", "a", "b", "c", "d")).groups) == 5
    lab.refusal(headers("bob", "a", "b", "c"))


def test_service_account_may_impersonate_its_own_node(lab: Lab) -> None:
    lab.allow(
        rule("impersonate:associated-node", "nodes", AUTHENTICATION),
        rule("impersonate-on:associated-node:list", "pods"),
        who="system:serviceaccount:ns:agent",
    )
    extra = {"authentication.kubernetes.io/node-name": ("n1",)}
    agent = User("system:serviceaccount:ns:agent", extra=extra)
    assert lab.apply(headers("system:node:n1"), agent).groups == ("system:nodes", "system:authenticated")
    lab.refusal(headers("system:node:n2"), agent)
    lab.refusal(headers("system:node:n1", "g"), agent)
    lab.refusal(headers("system:node:n1"), User("system:serviceaccount:ns:agent"))


def test_impersonation_mode_cache_is_bounded(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.apiserver.auth.impersonate._MOST_REMEMBERED", 2)
    for n in range(5):
        lab.apply(headers("bob"), User(f"u{n}", groups=("system:masters",)))
    assert len(lab.impersonation._last_mode) == 2


def test_undecodable_impersonation_extra_keys_are_kept_verbatim() -> None:
    user = wanted_user({"impersonate-user": ["bob"], "impersonate-extra-%ff": ["x"], "impersonate-extra-%41": ["y"]})
    assert user is not None
    assert user.extra == {"%ff": ("x",), "A": ("y",)}


def test_impersonation_headers_are_decoded_as_utf_8() -> None:
    def wired(text: str) -> list[str]:
        return [text.encode().decode("latin-1")]

    given = {"impersonate-user": wired("José"), "impersonate-group": wired("größe"), "impersonate-extra-a": wired("→")}
    assert wanted_user(given) == User("José", "", ("größe",), {"a": ("→",)})
    assert wanted_user({"impersonate-user": ["Jos\xe9"]}) == User("José")  # not UTF-8: taken as it is
