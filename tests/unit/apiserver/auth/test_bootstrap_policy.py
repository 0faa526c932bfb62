from __future__ import annotations

import copy
from typing import Any

import pytest

from remuda.apiserver.auth.bootstrap_policy import AUTO_UPDATE, defaults, needed_changes, reconcile
from remuda.apiserver.auth.rbac import RbacAuthorizer
from remuda.apiserver.auth.rules import rules_from
from remuda.apiserver.auth.user import Attributes, User
from remuda.apiserver.upkeep.aggregation import aggregated_rules

from .fakes import RBAC, FakeStore, group_subject, rule, user_subject

Key = tuple[str, str, str]


def key(table: str, obj: dict[str, Any]) -> Key:
    return table, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def stored() -> dict[Key, dict[str, Any]]:
    return {key(table, obj): copy.deepcopy(obj) for table, obj in defaults()}


def changes(objects: dict[Key, dict[str, Any]]) -> list[tuple[str, str]]:
    found = needed_changes(lambda *at: objects.get(at))
    return [(change.operation, change.obj["metadata"]["name"]) for change in found]


def default(name: str, kind: str = "ClusterRole") -> tuple[str, dict[str, Any]]:
    (one,) = ((t, o) for t, o in defaults() if o["metadata"]["name"] == name and o["kind"] == kind)
    return one[0], copy.deepcopy(one[1])


@pytest.fixture(scope="module")
def authorizer() -> RbacAuthorizer:
    """The defaults as they stand after upkeep has aggregated."""
    objects = stored()
    roles = {k: o for k, o in objects.items() if o["kind"] == "ClusterRole"}
    for name in ("view", "edit", "admin"):
        one = roles[f"clusterroles.{RBAC}", "", name]
        one["rules"] = aggregated_rules(one, roles.values())
    store = FakeStore()
    for (table, _, _), obj in objects.items():
        store.put(table, obj)
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": ""}
    for name in ("view", "edit", "admin"):
        binding = {"metadata": {"name": name, "namespace": "ns"}, "roleRef": {**ref, "name": name}}
        store.put(f"rolebindings.{RBAC}", {**binding, "subjects": [user_subject(name)]})
    return RbacAuthorizer(store)


def may(
    authorizer: RbacAuthorizer, user: str, verb: str, resource: str, group: str = "", namespace: str = "ns"
) -> bool:
    resource, _, sub = resource.partition("/")
    attributes = Attributes(verb=verb, group=group, resource=resource, subresource=sub, namespace=namespace)
    return authorizer.authorize(User(user), attributes).allowed


def test_default_rbac_objects_are_valid() -> None:
    seen = set()
    for table, obj in defaults():
        assert key(table, obj) not in seen
        seen.add(key(table, obj))
        assert obj["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        assert obj["metadata"]["annotations"] == {AUTO_UPDATE: "true"}
        for one in rules_from(obj.get("rules")):
            assert one.verbs
            for values in (one.verbs, one.api_groups, one.resources, one.resource_names, one.non_resource_urls):
                assert list(values or ()) == sorted(values or ())
            assert bool(one.resources) != bool(one.non_resource_urls)
            assert not any(" " in text or "," in text or ":" in text for text in one.resources or ())
    roles = {key(table, obj) for table, obj in defaults() if "roleRef" not in obj}
    for _, obj in defaults():
        if "roleRef" in obj:
            namespace = obj["metadata"].get("namespace", "")
            at = (f"{obj['roleRef']['kind'].lower()}s.{RBAC}", namespace, obj["roleRef"]["name"])
            assert at in roles


def test_default_rbac_objects_are_created_once() -> None:
    made = needed_changes(lambda *at: None)
    assert len(made) == len(defaults())
    assert {change.operation for change in made} == {"create"}
    assert changes({key(c.table, c.obj): c.obj for c in made}) == []


def test_needed_changes_do_not_share_metadata_with_defaults() -> None:
    for change in needed_changes(lambda *at: None):
        change.obj["metadata"]["uid"] = "x"
    assert not any("uid" in obj["metadata"] for _, obj in defaults())


def test_reconcile_adds_missing_rules_and_labels_and_keeps_user_additions() -> None:
    table, expected = default("system:discovery")
    existing = copy.deepcopy(expected)
    existing["rules"] = [rule("get", urls="/mine"), rule("get", urls="/api*,/healthz,/livez,/readyz,/version")]
    existing["metadata"]["labels"] = {"mine": "1"}
    existing["metadata"]["resourceVersion"] = "7"
    change = reconcile(table, existing, expected)
    assert change is not None
    assert change.operation == "update"
    assert change.obj["rules"] == [
        *existing["rules"],
        rule("get", urls="/openapi"),
        rule("get", urls="/openapi/*"),
        rule("get", urls="/version/"),
    ]
    assert change.obj["metadata"]["labels"] == {"mine": "1", "kubernetes.io/bootstrapping": "rbac-defaults"}
    assert change.obj["metadata"]["resourceVersion"] == "7"
    assert existing["metadata"]["labels"] == {"mine": "1"}
    assert reconcile(table, change.obj, expected) is None


def test_reconcile_adds_missing_subjects() -> None:
    table, expected = default("system:public-info-viewer", "ClusterRoleBinding")
    existing = {**copy.deepcopy(expected), "subjects": [user_subject("me"), group_subject("system:authenticated")]}
    change = reconcile(table, existing, expected)
    assert change is not None
    assert change.obj["subjects"] == [*existing["subjects"], group_subject("system:unauthenticated")]


def test_reconcile_recreates_binding_with_changed_role_ref() -> None:
    table, expected = default("cluster-admin", "ClusterRoleBinding")
    existing = copy.deepcopy(expected)
    existing["roleRef"]["name"] = "view"
    change = reconcile(table, existing, expected)
    assert change is not None
    assert (change.operation, change.obj) == ("recreate", expected)


def test_reconcile_skips_objects_with_autoupdate_false() -> None:
    table, expected = default("system:discovery")
    existing = {**copy.deepcopy(expected), "rules": None}
    existing["metadata"]["annotations"] = {AUTO_UPDATE: "false"}
    assert reconcile(table, existing, expected) is None


def test_reconcile_keeps_rules_of_aggregated_roles() -> None:
    table, expected = default("view")
    existing = {**copy.deepcopy(expected), "rules": [rule("get", "pods")]}
    assert reconcile(table, existing, expected) is None
    existing.pop("aggregationRule")
    change = reconcile(table, existing, expected)
    assert change is not None
    assert change.obj["aggregationRule"] == expected["aggregationRule"]


def test_reconcile_removes_unexpected_aggregation_rule(  # somebody turned a default role into an aggregate
) -> None:
    table, expected = default("system:discovery")
    existing = {**copy.deepcopy(expected), "aggregationRule": {"clusterRoleSelectors": [{}]}}
    change = reconcile(table, existing, expected)
    assert change is not None
    assert "aggregationRule" not in change.obj


def test_anonymous_user_may_get_only_health_and_version(authorizer: RbacAuthorizer) -> None:
    nobody = User("system:anonymous", groups=("system:unauthenticated",))

    def reaches(path: str) -> bool:
        return authorizer.authorize(nobody, Attributes(verb="get", path=path)).allowed

    assert all(map(reaches, ("/healthz", "/livez", "/readyz", "/version")))
    assert not any(map(reaches, ("/", "/api", "/apis", "/metrics", "/healthz/etcd", "/openapi/v3", "/openid/v1/jwks")))
    assert not authorizer.authorize(nobody, Attributes(verb="list", resource="pods")).allowed


def test_view_edit_and_admin_roles_grant_expected_permissions(authorizer: RbacAuthorizer) -> None:
    assert may(authorizer, "view", "list", "pods")
    assert may(authorizer, "view", "get", "deployments", "apps")
    assert not may(authorizer, "view", "get", "secrets")
    assert not may(authorizer, "view", "create", "pods")
    assert may(authorizer, "edit", "list", "pods")
    assert may(authorizer, "edit", "get", "secrets")
    assert may(authorizer, "edit", "create", "serviceaccounts/token")
    assert may(authorizer, "edit", "update", "leases", "coordination.k8s.io")
    assert not may(authorizer, "edit", "create", "roles", RBAC)
    assert may(authorizer, "admin", "create", "roles", RBAC)
    assert may(authorizer, "admin", "list", "pods")
    assert not may(authorizer, "admin", "list", "pods", namespace="other")


def test_controller_manager_accounts_have_required_permissions(authorizer: RbacAuthorizer) -> None:
    manager = "system:kube-controller-manager"
    assert may(authorizer, manager, "list", "machines", "cluster.x-k8s.io", "")
    assert may(authorizer, manager, "create", "serviceaccounts/token", namespace="kube-system")
    assert may(authorizer, manager, "update", "leases", "coordination.k8s.io", "kube-system")
    collector = "system:serviceaccount:kube-system:generic-garbage-collector"
    assert may(authorizer, collector, "delete", "machines", "cluster.x-k8s.io", "any")
    namespaces = "system:serviceaccount:kube-system:namespace-controller"
    assert may(authorizer, namespaces, "deletecollection", "pods", namespace="any")
    assert may(authorizer, namespaces, "update", "namespaces/finalize", namespace="")
    aggregator = "system:serviceaccount:kube-system:clusterrole-aggregation-controller"
    assert may(authorizer, aggregator, "escalate", "clusterroles", RBAC, "")
