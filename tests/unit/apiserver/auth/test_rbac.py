from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.auth import rbac
from remuda.apiserver.auth.messages import denial, forbidden
from remuda.apiserver.auth.rbac import RbacAuthorizer
from remuda.apiserver.auth.rbac_index import RoleRef
from remuda.apiserver.auth.user import Attributes, User

from .fakes import RBAC, RbacStore, group_subject, rule, service_account_subject, user_subject

JANE = User("jane", groups=("dev", "system:authenticated"))


def ask(authorizer: RbacAuthorizer, user: User, verb: str, resource: str, **more: str) -> bool:
    resource, _, subresource = resource.partition("/")
    return authorizer.authorize(user, Attributes(verb=verb, resource=resource, subresource=subresource, **more)).allowed


@pytest.fixture
def store() -> RbacStore:
    return RbacStore()


def test_request_without_binding_is_denied(store: RbacStore) -> None:
    store.cluster_role("reader", rule("get", "pods"))
    assert not ask(RbacAuthorizer(store), JANE, "get", "pods")


def test_system_masters_group_is_allowed_everything(store: RbacStore) -> None:
    root = User("root", groups=("system:masters",))
    authorizer = RbacAuthorizer(store)
    assert authorizer.authorize(root, Attributes(verb="delete", resource="nodes")).allowed
    assert authorizer.authorize(root, Attributes(verb="get", path="/metrics")).allowed


def test_allow_reason_names_binding_role_and_subject(store: RbacStore) -> None:
    store.cluster_role("reader", rule("get", "pods"))
    store.bind_cluster("b1", "reader", group_subject("other"), group_subject("dev"), user_subject("jane"))
    decision = RbacAuthorizer(store).authorize(JANE, Attributes(verb="get", resource="pods"))
    assert decision.reason == 'RBAC: allowed by ClusterRoleBinding "b1" of ClusterRole "reader" to Group "dev"'


def test_allow_reason_names_service_account_and_namespace(store: RbacStore) -> None:
    store.role("ns", "reader", rule("get", "pods"))
    store.bind("ns", "b1", "reader", service_account_subject("robot"))
    robot = User("system:serviceaccount:ns:robot")
    decision = RbacAuthorizer(store).authorize(robot, Attributes(verb="get", resource="pods", namespace="ns"))
    assert decision.reason == 'RBAC: allowed by RoleBinding "b1/ns" of Role "reader" to ServiceAccount "robot/ns"'


def test_denial_reason_names_missing_roles(store: RbacStore) -> None:
    store.bind_cluster("b1", "gone", user_subject("jane"))
    store.bind("ns", "b2", "lost", user_subject("jane"))
    decision = RbacAuthorizer(store).authorize(JANE, Attributes(verb="get", resource="pods", namespace="ns"))
    assert not decision.allowed
    assert decision.reason == f'RBAC: [clusterrole.{RBAC} "gone" not found, role.{RBAC} "lost" not found]'


def test_role_binding_grants_only_in_its_namespace(store: RbacStore) -> None:
    store.cluster_role("reader", rule("get", "pods"))
    store.bind("a", "b1", "reader", user_subject("jane"), kind="ClusterRole")
    authorizer = RbacAuthorizer(store)
    assert ask(authorizer, JANE, "get", "pods", namespace="a")
    assert not ask(authorizer, JANE, "get", "pods", namespace="b")
    assert not ask(authorizer, JANE, "get", "pods")


def test_cluster_role_binding_to_role_kind_grants_nothing(store: RbacStore) -> None:
    store.cluster_role("all", rule("*", "*", "*"))
    ref = {"apiGroup": RBAC, "kind": "Role", "name": "all"}
    obj = {"metadata": {"name": "b"}, "roleRef": ref, "subjects": [user_subject("jane")]}
    store.put(f"clusterrolebindings.{RBAC}", obj)
    assert not ask(RbacAuthorizer(store), JANE, "get", "pods")


def test_service_account_subject_without_namespace_matches_no_user(store: RbacStore) -> None:
    store.cluster_role("all", rule("*", "*", "*"))
    store.bind_cluster("b", "all", service_account_subject("robot"))
    assert not ask(RbacAuthorizer(store), User("system:serviceaccount::robot"), "get", "pods")


@pytest.mark.parametrize(
    ("resources", "asked", "allowed"),
    [
        ("pods", "pods", True),
        ("pods", "pods/log", False),
        ("pods/log", "pods/log", True),
        ("pods/log", "pods", False),
        ("*", "pods/log", True),
        ("*/scale", "deployments/scale", True),
        ("*/scale", "deployments/status", False),
        ("*/scale", "scale", False),
        ("pods/*", "pods/log", False),
    ],
)
def test_rule_matches_resources_and_subresources(store: RbacStore, resources: str, asked: str, allowed: bool) -> None:
    store.cluster_role("r", rule("get", resources))
    store.bind_cluster("b", "r", user_subject("jane"))
    assert ask(RbacAuthorizer(store), JANE, "get", asked) is allowed


def test_rule_matches_verbs_and_api_groups(store: RbacStore) -> None:
    store.cluster_role("r", rule("get,list", "machines", "cluster.x-k8s.io"), rule("*", "jobs", "*"))
    store.bind_cluster("b", "r", user_subject("jane"))
    authorizer = RbacAuthorizer(store)
    assert ask(authorizer, JANE, "list", "machines", group="cluster.x-k8s.io")
    assert not ask(authorizer, JANE, "delete", "machines", group="cluster.x-k8s.io")
    assert not ask(authorizer, JANE, "list", "machines")
    assert ask(authorizer, JANE, "anything", "jobs", group="batch")


def test_rule_with_resource_names_matches_only_listed_names(store: RbacStore) -> None:
    store.role("ns", "one", rule("get,watch", "secrets", names="plan-1"))
    store.bind("ns", "b", "one", user_subject("jane"))
    authorizer = RbacAuthorizer(store)
    for _ in range(2):  # first worked out, then remembered
        assert ask(authorizer, JANE, "watch", "secrets", namespace="ns", name="plan-1")
        assert not ask(authorizer, JANE, "watch", "secrets", namespace="ns", name="plan-2")
        assert not ask(authorizer, JANE, "watch", "secrets", namespace="ns")


def test_resource_names_of_a_role_do_not_restrict_other_roles(store: RbacStore) -> None:
    store.cluster_role("named", rule("get", "secrets", names="a"))
    store.cluster_role("all", rule("get", "secrets"))
    store.bind_cluster("b1", "named", user_subject("jane"))
    store.bind_cluster("b2", "all", group_subject("dev"))
    assert ask(RbacAuthorizer(store), JANE, "get", "secrets", name="b")


@pytest.mark.parametrize(
    ("urls", "path", "allowed"),
    [
        ("/healthz", "/healthz", True),
        ("/healthz", "/healthz/etcd", False),
        ("/healthz/*", "/healthz/etcd", True),
        ("/healthz/*", "/healthz", False),
        ("/api*", "/apis/apps", True),
        ("*", "/metrics", True),
    ],
)
def test_rule_matches_non_resource_urls(store: RbacStore, urls: str, path: str, allowed: bool) -> None:
    store.cluster_role("r", rule("get", urls=urls))
    store.bind_cluster("b", "r", group_subject("dev"))
    authorizer = RbacAuthorizer(store)
    assert authorizer.authorize(JANE, Attributes(verb="get", path=path)).allowed is allowed
    assert not authorizer.authorize(JANE, Attributes(verb="post", path=path)).allowed


def test_rbac_changes_take_effect_immediately(store: RbacStore) -> None:
    authorizer = RbacAuthorizer(store)
    assert not ask(authorizer, JANE, "get", "pods")
    store.bind_cluster("b", "r", user_subject("jane"))
    assert not ask(authorizer, JANE, "get", "pods")
    store.cluster_role("r", rule("get", "pods"))
    assert ask(authorizer, JANE, "get", "pods")
    store.bind_cluster("b", "r", user_subject("joe"))
    assert not ask(authorizer, JANE, "get", "pods")
    store.bind_cluster("b", "r", user_subject("jane"))
    assert ask(authorizer, JANE, "get", "pods")
    store.delete(f"clusterroles.{RBAC}", "", "r")
    assert not ask(authorizer, JANE, "get", "pods")
    assert authorizer.generation == 5


def test_changes_of_other_resources_keep_the_authorization_cache(store: RbacStore) -> None:
    authorizer = RbacAuthorizer(store)
    store.put("pods", {"metadata": {"name": "p", "namespace": "ns"}})
    assert authorizer.generation == 0


def test_closed_authorizer_unsubscribes_from_store(store: RbacStore) -> None:
    authorizer = RbacAuthorizer(store)
    authorizer.close()
    assert store.listeners == []


@pytest.mark.parametrize("value", [b"{}", b"not json", b'{"rules": 5}', b'{"roleRef": null}', b"[" * 100_000])
def test_unparsable_rbac_object_grants_nothing_and_does_not_fail(store: RbacStore, value: bytes) -> None:
    authorizer = RbacAuthorizer(store)
    store.cluster_role("r", rule("get", "pods"))
    store.bind_cluster("b", "r", user_subject("jane"))
    for table in ("roles", "rolebindings", "clusterroles", "clusterrolebindings"):
        store.put_bytes(f"{table}.{RBAC}", "ns" if table.startswith("role") else "", "b", value)
    assert not ask(authorizer, JANE, "get", "pods", namespace="ns")


def test_null_rbac_lists_are_treated_as_empty(store: RbacStore) -> None:
    store.put_bytes(f"clusterroles.{RBAC}", "", "r", b'{"rules": null}')
    store.put_bytes(f"clusterroles.{RBAC}", "", "q", b'{"rules":[{"verbs":["get"],"apiGroups":null,"resources":null}]}')
    ref = b'{"roleRef":{"apiGroup":"x","kind":"ClusterRole","name":"r"},"subjects":null}'
    store.put_bytes(f"clusterrolebindings.{RBAC}", "", "b", ref)
    assert not ask(RbacAuthorizer(store), JANE, "get", "pods")


def test_authorization_cache_is_bounded(store: RbacStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rbac, "_MOST_REMEMBERED", 50)
    store.cluster_role("r", rule("get", "pods", names=",".join(f"p{n}" for n in range(20))))
    store.bind_cluster("b", "r", group_subject("dev"))
    authorizer = RbacAuthorizer(store)
    for n in range(200):
        assert ask(authorizer, User(f"u{n}", groups=("dev",)), "get", "pods", name="p3")
    assert sum(1 + len(a.by_name) for a in authorizer._answers.values()) == authorizer._remembered <= 50


def test_rules_for_collects_cluster_and_namespace(store: RbacStore) -> None:
    store.cluster_role("c", rule("get", "nodes"))
    store.role("ns", "r", rule("get", "pods"))
    store.bind_cluster("b", "c", user_subject("jane"), group_subject("dev"))
    store.bind("ns", "b", "r", user_subject("jane"))
    store.bind("ns", "b2", "lost", user_subject("jane"))
    authorizer = RbacAuthorizer(store)
    rules, problem = authorizer.rules_for(JANE, "ns")
    assert [r.resources for r in rules] == [("nodes",), ("pods",)]
    assert problem == f'role.{RBAC} "lost" not found'
    assert [r.resources for r in authorizer.rules_for(JANE, "")[0]] == [("nodes",)]


def test_role_rules_resolves_role_ref_in_namespace(store: RbacStore) -> None:
    store.role("ns", "r", rule("get", "pods"))
    authorizer = RbacAuthorizer(store)
    assert [r.resources for r in authorizer.role_rules(RoleRef(RBAC, "Role", "r"), "ns") or ()] == [("pods",)]
    assert authorizer.role_rules(RoleRef(RBAC, "Role", "r"), "other") is None
    assert authorizer.role_rules(RoleRef(RBAC, "ClusterRole", "r"), "ns") is None


def test_denial_message_matches_upstream() -> None:
    pods = Attributes(verb="list", resource="pods", namespace="x")
    assert denial(JANE, pods) == 'User "jane" cannot list resource "pods" in API group "" in the namespace "x"'
    log = Attributes(verb="get", group="g", resource="pods", subresource="log", name="p")
    error = forbidden(JANE, log)
    assert error.message == (
        'pods.g "p" is forbidden: User "jane" cannot get resource "pods/log" in API group "g" at the cluster scope'
    )
    assert error.details == {"name": "p", "group": "g", "kind": "pods"}
    path = forbidden(JANE, Attributes(verb="get", path="/x"), "RBAC: oops")
    assert path.message == 'forbidden: User "jane" cannot get path "/x": RBAC: oops'
    assert path.code == 403


def test_denial_message_escapes_client_supplied_text() -> None:
    mallory = User('m"\n<b>')
    assert denial(mallory, Attributes(verb="get", path="/")).startswith('User "m\\"\\n<b>" cannot')
    assert "<b>" not in forbidden(mallory, Attributes(verb="get", path="/")).message


# ---- against a plain reading of the rules -----------------------------------------------------------------------

_VERBS = st.sampled_from(["get", "list", "*"])
_GROUPS = st.sampled_from(["", "apps", "*"])
_RESOURCES = st.sampled_from(["pods", "pods/log", "*/log", "*", "jobs"])
_NAMES = st.sampled_from(["a", "b"])
_RULE = st.fixed_dictionaries(
    {
        "verbs": st.lists(_VERBS, max_size=2),
        "apiGroups": st.lists(_GROUPS, max_size=2),
        "resources": st.lists(_RESOURCES, max_size=2),
        "resourceNames": st.lists(_NAMES, max_size=2),
    }
)
_ROLES = st.lists(st.lists(_RULE, max_size=3), min_size=1, max_size=3)
_QUESTIONS = st.lists(
    st.tuples(
        st.sampled_from(["get", "list"]),
        st.sampled_from(["", "apps"]),
        st.sampled_from(["pods", "pods/log", "jobs"]),
        st.sampled_from(["", "a", "b"]),
    ),
    min_size=1,
    max_size=8,
)


def _plainly(rules: list[dict[str, list[str]]], verb: str, group: str, resource: str, name: str) -> bool:
    wanted = {resource, "*"} | ({"*/" + resource.split("/")[1]} if "/" in resource else set())
    return any(
        {verb, "*"} & set(r["verbs"])
        and {group, "*"} & set(r["apiGroups"])
        and wanted & set(r["resources"])
        and (not r["resourceNames"] or name in r["resourceNames"])
        for r in rules
    )


@given(_ROLES, _QUESTIONS)
def test_authorizer_agrees_with_naive_rule_evaluation(
    roles: list[list[dict[str, list[str]]]], questions: list[tuple[str, str, str, str]]
) -> None:
    store = RbacStore()
    for n, rules in enumerate(roles):
        store.cluster_role(f"r{n}", *rules)
        store.bind_cluster(f"b{n}", f"r{n}", user_subject("jane") if n % 2 else group_subject("dev"))
    authorizer = RbacAuthorizer(store)
    every = [r for rules in roles for r in rules]
    for verb, group, resource, name in questions:
        assert ask(authorizer, JANE, verb, resource, group=group, name=name) == _plainly(
            every, verb, group, resource, name
        )
