from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.auth.escalation import check_write
from remuda.apiserver.auth.rbac import RbacAuthorizer
from remuda.apiserver.auth.rules import CompiledRules, PolicyRule, broken_down, uncovered
from remuda.apiserver.auth.user import User
from remuda.kube.errors import StatusError

from .fakes import RBAC, RbacStore, rule, user_subject

JANE = User("jane", groups=("dev", "system:authenticated"))


class Lab:
    def __init__(self) -> None:
        self.store = RbacStore()
        self.authorizer = RbacAuthorizer(self.store)

    def hold(self, *rules: dict[str, Any]) -> None:
        self.store.cluster_role("held", *rules)
        self.store.bind_cluster("held", "held", user_subject("jane"))

    def write(
        self, resource: str, obj: dict[str, Any], old: dict[str, Any] | None = None, user: User = JANE, ns: str = ""
    ) -> None:
        name = obj["metadata"]["name"] if old else ""
        check_write(resource, user, ns, obj, old, self.authorizer, name)

    def refusal(self, *arguments: Any, **more: Any) -> StatusError:
        with pytest.raises(StatusError) as caught:
            self.write(*arguments, **more)
        return caught.value


@pytest.fixture
def lab() -> Lab:
    return Lab()


def role(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "rules": list(rules), **more}


def binding(name: str, kind: str = "ClusterRole") -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name}, "subjects": []}


def test_role_with_held_permissions_is_accepted(lab: Lab) -> None:
    lab.hold(rule("get,list", "pods,secrets"))
    lab.write("clusterroles", role(rule("get", "pods"), rule("list", "secrets", names="a")))


def test_escalation_error_lists_missing_permissions(lab: Lab) -> None:
    lab.hold(rule("get", "pods"))
    error = lab.refusal("roles", role(rule("get,list", "secrets,pods", ",apps", names="a")), ns="default")
    assert error.code == 403
    assert error.message == (
        f'roles.{RBAC} "x" is forbidden: user "jane" (groups=["dev" "system:authenticated"]) is attempting to grant '
        "RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["list"]}\n'
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get" "list"]}\n'
        '{APIGroups:["apps"], Resources:["pods"], ResourceNames:["a"], Verbs:["get" "list"]}\n'
        '{APIGroups:["apps"], Resources:["secrets"], ResourceNames:["a"], Verbs:["get" "list"]}'
    )


def test_escalation_error_reports_dangling_bindings_of_user(lab: Lab) -> None:
    lab.store.bind_cluster("d", "gone", user_subject("jane"))
    error = lab.refusal("roles", role(rule("get", "secrets")), ns="default")
    assert error.message.endswith(
        f'{{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}}; resolution errors: [roles.{RBAC} "gone" not found]'
    )


def test_escalation_check_covers_non_resource_urls(lab: Lab) -> None:
    lab.hold(rule("get", urls="/healthz/*"))
    lab.write("clusterroles", role(rule("get", urls="/healthz/etcd")))
    assert (
        '{NonResourceURLs:["/metrics"], Verbs:["get"]}'
        in lab.refusal("clusterroles", role(rule("get", urls="/metrics"))).message
    )


def test_namespaced_permissions_may_be_granted_only_in_their_namespace(lab: Lab) -> None:
    lab.store.role("a", "r", rule("get", "pods"))
    lab.store.bind("a", "r", "r", user_subject("jane"))
    lab.write("roles", role(rule("get", "pods")), ns="a")
    lab.refusal("roles", role(rule("get", "pods")), ns="b")
    lab.refusal("clusterroles", role(rule("get", "pods")))


def test_system_masters_and_escalate_verb_may_grant_anything(lab: Lab) -> None:
    lab.write("clusterroles", role(rule("*", "*", "*")), user=User("root", groups=("system:masters",)))
    lab.hold(rule("escalate", "clusterroles", RBAC))
    lab.write("clusterroles", role(rule("*", "*", "*")))
    lab.refusal("roles", role(rule("*", "*", "*")), ns="a")


def test_escalate_with_resource_name_applies_only_to_update(lab: Lab) -> None:
    lab.hold(rule("escalate", "clusterroles", RBAC, names="x"))
    lab.write("clusterroles", role(rule("*", "*", "*")), role())
    lab.refusal("clusterroles", role(rule("*", "*", "*")))  # on create the request has no name


def test_aggregation_rule_requires_cluster_admin(lab: Lab) -> None:
    lab.hold(rule("get,create", "*", "*"))  # "*" for a verb would include escalate
    aggregating = role(aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]})
    for new, old in ((aggregating, None), (role(), aggregating)):
        assert lab.refusal("clusterroles", new, old).message == (
            f'clusterroles.{RBAC} "x" is forbidden: must have cluster-admin privileges to use the aggregationRule'
        )
    lab.hold(rule("*", "*", "*"), rule("*", urls="*"))
    lab.write("clusterroles", aggregating)


def test_owner_and_finalizer_changes_skip_escalation_check(lab: Lab) -> None:
    old = role(rule("*", "*", "*"))
    new = {**old, "metadata": {"name": "x", "finalizers": ["a/b"], "ownerReferences": [], "managedFields": []}}
    lab.write("clusterroles", new, old)
    lab.refusal("clusterroles", {**new, "metadata": {"name": "x", "labels": {"a": "b"}}}, old)


def test_role_binding_requires_permissions_of_the_role(lab: Lab) -> None:
    lab.store.cluster_role("reader", rule("get", "pods"))
    assert "not currently held" in lab.refusal("rolebindings", binding("reader"), ns="a").message
    lab.hold(rule("get", "pods"))
    lab.write("rolebindings", binding("reader"), ns="a")
    lab.write("clusterrolebindings", binding("reader"))


def test_bind_verb_permits_role_binding(lab: Lab) -> None:
    lab.store.cluster_role("all", rule("*", "*", "*"))
    lab.store.role("a", "binder", rule("bind", "clusterroles", RBAC, names="all"))
    lab.store.bind("a", "binder", "binder", user_subject("jane"))
    lab.write("rolebindings", binding("all"), ns="a")
    lab.refusal("rolebindings", binding("all"), ns="b")
    lab.refusal("clusterrolebindings", binding("all"))


def test_binding_to_missing_role_returns_404(lab: Lab) -> None:
    error = lab.refusal("rolebindings", binding("nope"), ns="a")
    assert (error.code, error.message) == (404, f'rolebindings.{RBAC} "nope" not found')


def test_binding_without_role_name_returns_400(lab: Lab) -> None:
    error = lab.refusal("rolebindings", binding(""), ns="a")
    assert (error.code, error.message) == (400, "Name parameter required.")


def test_binding_with_unknown_role_kind_returns_500(lab: Lab) -> None:
    error = lab.refusal("rolebindings", binding("nope", "Foo"), ns="a")
    assert (error.code, error.message) == (500, 'unsupported role reference kind: "Foo"')


def test_role_expanding_to_too_many_permissions_is_rejected(lab: Lab) -> None:
    many = ",".join(f"n{n}" for n in range(1000))
    monster = role({**rule(many, many, many), "resourceNames": many.split(",")})
    assert "more than 50000 permissions" in lab.refusal("clusterroles", monster).message
    lab.hold(rule("*", "*", "*"))
    lab.write("clusterroles", monster)


# ---- covering, against its meaning --------------------------------------------------------------------------------

_RULES = st.lists(
    st.builds(
        PolicyRule,
        verbs=st.lists(st.sampled_from(["get", "list", "*"]), max_size=2).map(tuple),
        api_groups=st.lists(st.sampled_from(["", "apps", "*"]), max_size=2).map(tuple),
        resources=st.lists(st.sampled_from(["pods", "pods/log", "*/log", "*"]), max_size=2).map(tuple),
        resource_names=st.lists(st.sampled_from(["a", "b"]), max_size=2).map(tuple),
        non_resource_urls=st.lists(st.sampled_from(["/a", "/a/*", "*", "/a/b"]), max_size=2).map(tuple),
    ),
    max_size=3,
)


@given(_RULES, _RULES)
def test_covered_rules_grant_no_additional_permissions(owner: list[PolicyRule], wanted: list[PolicyRule]) -> None:
    if uncovered(owner, wanted):
        return
    have, gets = CompiledRules(owner), CompiledRules(wanted)
    for verb in ("get", "list", "other"):
        for path in ("/a", "/a/b", "/c"):
            assert have.allows_path(verb, path) or not gets.allows_path(verb, path)
        for group in ("", "apps", "other"):
            for resource, sub in (("pods", ""), ("pods", "log"), ("jobs", "log"), ("jobs", "")):
                held, given_ = have.scope(verb, group, resource, sub), gets.scope(verb, group, resource, sub)
                assert held.everything or (not given_.everything and given_.names <= held.names)


@given(_RULES, _RULES)
def test_uncovered_rules_match_uncovered_single_permissions(owner: list[PolicyRule], wanted: list[PolicyRule]) -> None:
    one_by_one = [single for single in broken_down(wanted) if uncovered(owner, [single])]
    assert uncovered(owner, wanted) == one_by_one


@given(_RULES)
def test_rules_cover_themselves(rules: list[PolicyRule]) -> None:
    # The API admits no rule for both names and paths; of such one nothing would cover the paths.
    valid = [one for one in rules if not (one.resource_names and one.non_resource_urls)]
    assert uncovered(valid, valid) == []
