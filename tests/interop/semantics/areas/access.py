"""Who may do what: RBAC, impersonation, reviews, anonymous users."""

from __future__ import annotations

from typing import Any

from tests.interop.semantics.trial import Trial, case

RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULE = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}


def _role(t: Trial, namespace: str, *rules: dict[str, Any], user: str, name: str = "r") -> None:
    t.quietly("POST", f"{RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": name}, "rules": list(rules)})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
    }
    t.quietly("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    t.until(lambda: _may(t, user, namespace, rules[0]))


def _may(t: Trial, user: str, namespace: str, rule: dict[str, Any]) -> bool:
    attributes = {
        "namespace": namespace,
        "verb": rule["verbs"][0],
        "group": rule["apiGroups"][0],
        "resource": rule["resources"][0].partition("/")[0],
        "subresource": rule["resources"][0].partition("/")[2],
        "name": (rule.get("resourceNames") or [""])[0],
    }
    body = {"spec": {"user": user, "resourceAttributes": attributes}}
    reply = t.server.http("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return bool(reply.body.get("status", {}).get("allowed"))


@case("access")
def nothing_without_a_role(t: Trial) -> None:
    path = t.configmaps()
    user = t.name("user")
    t.get(path, as_user=user)
    t.get(f"{path}/a", as_user=user)
    t.post(path, {"metadata": {"name": "a"}}, as_user=user)
    t.delete(f"{path}/a", as_user=user)
    t.delete(path, as_user=user)
    t.get("/api/v1/nodes", as_user=user)
    t.get("/api/v1/nodes/n", as_user=user)
    t.patch(f"{path}/a", {}, as_user=user)
    t.get(path, query={"watch": "true"}, as_user=user)
    t.get("/api/v1/configmaps", as_user=user)
    t.put(f"/apis/apps/v1/namespaces/{t.name()}/deployments/d/scale", {}, as_user=user)


@case("access")
def non_resource_paths(t: Trial) -> None:
    user = t.name("user")
    for path in ("/healthz", "/version", "/metrics", "/api", "/apis", "/nothing", "/openapi/v3"):
        reply = t.server.http("GET", path, as_user=user)
        t.note([path, reply.code, reply.body.get("message") if reply.code == 403 else ""])


@case("access")
def a_role_in_one_namespace(t: Trial) -> None:
    namespace, user = t.namespace(), t.name("user")
    _role(t, namespace, RULE, user=user)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    t.get(path, as_user=user)
    t.get(f"{path}/nothing", as_user=user)
    t.post(path, {"metadata": {"name": "a"}}, as_user=user)
    t.get("/api/v1/namespaces/default/configmaps", as_user=user)


@case("access")
def resource_names(t: Trial) -> None:
    namespace, user = t.namespace(), t.name("user")
    rule = {**RULE, "resourceNames": ["mine"], "verbs": ["get", "list", "watch", "update"]}
    _role(t, namespace, rule, user=user)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    t.get(f"{path}/mine", as_user=user)
    t.get(f"{path}/other", as_user=user)
    t.get(path, as_user=user)
    t.get(path, query={"fieldSelector": "metadata.name=mine"}, as_user=user)
    t.get(path, query={"fieldSelector": "metadata.name=other"}, as_user=user)


@case("access")
def subresources(t: Trial) -> None:
    namespace, user = t.namespace(), t.name("user")
    rule = {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get"]}
    _role(t, namespace, rule, user=user)
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/d"
    t.get(f"{path}/scale", as_user=user)
    t.get(path, as_user=user)


@case("access")
def wildcards(t: Trial) -> None:
    namespace, user = t.namespace(), t.name("user")
    _role(t, namespace, {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, user=user)
    t.post(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "a"}}, as_user=user)
    t.get(f"/apis/apps/v1/namespaces/{namespace}/deployments", as_user=user)
    t.get(f"/api/v1/namespaces/{namespace}", as_user=user)


@case("access")
def groups_and_service_accounts(t: Trial) -> None:
    namespace = t.namespace()
    t.quietly("POST", f"{RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": "r"}, "rules": [RULE]})
    binding = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [
            {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": t.name("team")},
            {"kind": "ServiceAccount", "name": "sa", "namespace": namespace},
        ],
    }
    t.quietly("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    account = f"system:serviceaccount:{namespace}:sa"
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    t.until(lambda: t.server.http("GET", path, as_user=account).code == 200)
    t.get(path, as_user=account)
    t.get(path, as_user="someone", as_groups=(t.name("team"),))
    t.get(path, as_user="someone", as_groups=(t.name("other"),))
    t.get(path, as_user="someone", as_groups=(f"system:serviceaccounts:{namespace}",))


@case("access")
def escalation_is_refused(t: Trial) -> None:
    namespace, user = t.namespace(), t.name("user")
    roles = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]}
    _role(t, namespace, roles, RULE, user=user)
    path = f"{RBAC}/namespaces/{namespace}"
    t.post(f"{path}/roles", {"metadata": {"name": "fine"}, "rules": [RULE]}, as_user=user)
    more = {**RULE, "verbs": ["delete"]}
    t.post(f"{path}/roles", {"metadata": {"name": "more"}, "rules": [more]}, as_user=user)
    t.patch(f"{path}/roles/fine", {"rules": [more]}, as_user=user)
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [],
    }
    t.post(f"{path}/rolebindings", binding, as_user=user)


@case("access")
def bindings_need_the_bind_verb_or_the_rules(t: Trial) -> None:
    namespace, user = t.namespace(), t.name("user")
    make = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": ["create"]}
    bind = {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"],
        "verbs": ["bind"],
        "resourceNames": ["edit"],
    }
    _role(t, namespace, make, bind, user=user)
    for role in ("edit", "admin"):
        binding = {
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        }
        reply = t.server.http("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding, as_user=user)
        t.note([role, reply.code, reply.body.get("reason")])


@case("access")
def role_refs_cannot_change(t: Trial) -> None:
    namespace = t.namespace()
    path = f"{RBAC}/namespaces/{namespace}/rolebindings"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}
    t.post(path, {"metadata": {"name": "b"}, "roleRef": reference})
    t.patch(f"{path}/b", {"roleRef": {**reference, "name": "c"}})
    t.patch(f"{path}/b", {"subjects": [{"kind": "User", "name": "x"}]})


@case("access")
def bad_roles_and_bindings(t: Trial) -> None:
    path = f"{RBAC}/namespaces/{t.namespace()}"
    t.post(f"{path}/roles", {"metadata": {"name": "a"}, "rules": [{"apiGroups": [""], "resources": ["x"]}]})
    t.post(f"{path}/roles", {"metadata": {"name": "a"}, "rules": [{"verbs": ["get"], "resources": ["x"]}]})
    t.post(f"{path}/roles", {"metadata": {"name": "a"}, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]})
    t.post(f"{path}/rolebindings", {"metadata": {"name": "a"}})
    t.post(f"{path}/rolebindings", {"metadata": {"name": "a"}, "roleRef": {"kind": "Thing", "name": "x"}})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}
    for subject in ({"kind": "Robot", "name": "x"}, {"kind": "User"}, {"kind": "ServiceAccount", "name": "x"}):
        t.post(f"{path}/rolebindings", {"metadata": {"name": "a"}, "roleRef": reference, "subjects": [subject]})


@case("access")
def odd_role_names_are_fine(t: Trial) -> None:
    path = f"{RBAC}/clusterroles"
    t.post(path, {"metadata": {"name": f"lab:{t.tag}:Odd_Name"}, "rules": []})
    t.post(path, {"metadata": {"name": "a/b"}, "rules": []})
    t.quietly("DELETE", f"{path}/lab:{t.tag}:Odd_Name")


@case("access")
def aggregated_roles(t: Trial) -> None:
    label = {f"lab.dev/{t.tag}": "true"}
    part = {"metadata": {"name": t.name("part"), "labels": label}, "rules": [RULE]}
    t.quietly("POST", f"{RBAC}/clusterroles", part)
    whole = {
        "metadata": {"name": t.name("whole")},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": label}]},
    }
    t.quietly("POST", f"{RBAC}/clusterroles", whole)
    path = f"{RBAC}/clusterroles/{t.name('whole')}"
    t.until(lambda: bool(t.server.http("GET", path).body.get("rules")))
    t.note(t.quietly("GET", path)["rules"])
    t.quietly("DELETE", f"{RBAC}/clusterroles/{t.name('part')}")
    t.until(lambda: not t.server.http("GET", path).body.get("rules"))
    t.note(t.quietly("GET", path).get("rules"))


@case("access")
def default_roles_exist(t: Trial) -> None:
    for name in ("cluster-admin", "admin", "edit", "view"):
        body = t.quietly("GET", f"{RBAC}/clusterroles/{name}")
        t.note({"name": name, "labels": body["metadata"]["labels"], "aggregation": body.get("aggregationRule")})
    t.note(t.quietly("GET", f"{RBAC}/clusterrolebindings/cluster-admin")["subjects"])


@case("access")
def self_subject_access_review(t: Trial) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    attributes = {"namespace": "default", "verb": "get", "resource": "pods"}
    t.post(path, {"spec": {"resourceAttributes": attributes}}, as_user=t.name("user"))
    t.post(path, {"spec": {"nonResourceAttributes": {"path": "/apis", "verb": "get"}}}, as_user=t.name("user"))
    t.post(path, {"spec": {}})
    t.post(path, {"spec": {"resourceAttributes": attributes, "nonResourceAttributes": {"path": "/x", "verb": "get"}}})


@case("access")
def subject_access_review(t: Trial) -> None:
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    attributes = {"namespace": "default", "verb": "get", "resource": "pods"}
    t.post(path, {"spec": {"user": "nobody", "resourceAttributes": attributes}})
    t.post(path, {"spec": {"groups": ["system:masters"], "user": "x", "resourceAttributes": attributes}})
    t.post(path, {"spec": {"resourceAttributes": attributes}})
    t.post(path, {"metadata": {"name": "x"}, "spec": {"user": "x", "resourceAttributes": attributes}})


@case("access")
def local_subject_access_review(t: Trial) -> None:
    namespace = t.namespace()
    path = f"/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews"
    attributes = {"namespace": namespace, "verb": "get", "resource": "pods"}
    t.post(path, {"spec": {"user": "nobody", "resourceAttributes": attributes}})
    t.post(path, {"spec": {"user": "nobody", "resourceAttributes": {**attributes, "namespace": "other"}}})


@case("access")
def rules_review(t: Trial) -> None:
    namespace, user = t.namespace(), t.name("user")
    _role(t, namespace, RULE, user=user)
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    reply = t.server.http("POST", path, {"spec": {"namespace": namespace}}, as_user=user)
    t.note(
        [reply.code, [rule for rule in reply.body["status"]["resourceRules"] if rule["resources"] == ["configmaps"]]]
    )
    t.post(path, {"spec": {}}, as_user=user)


@case("access")
def who_am_i(t: Trial) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    headers = {"Impersonate-Uid": "u-1", "Impersonate-Extra-Team": "lab"}
    t.post(path, {}, as_user="jane", as_groups=("staff",), headers=headers)
    t.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})


@case("access")
def impersonation_needs_a_user(t: Trial) -> None:
    t.get("/api/v1/namespaces", headers={"Impersonate-Group": "staff"})


@case("access")
def impersonation_must_be_allowed(t: Trial) -> None:
    path = t.configmaps()
    user = t.name("user")
    accounts = f"{path.rpartition('/')[0]}/serviceaccounts"
    t.quietly("POST", accounts, {"metadata": {"name": "sa"}})
    answer = t.quietly("POST", f"{accounts}/sa/token", {"spec": {"expirationSeconds": 600}})
    t.get(path, token=answer["status"]["token"], as_user=user)


@case("access")
def anonymous(t: Trial) -> None:
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        reply = t.server.http("GET", path, admin=False)
        t.note([path, reply.code])
    t.get("/api/v1/namespaces", admin=False)
    t.get("/apis", admin=False)
    t.get("/metrics", admin=False)


@case("access")
def a_bad_token(t: Trial) -> None:
    t.get("/api/v1/namespaces", token="nonsense")
    t.get("/healthz", token="nonsense")
    t.get("/api/v1/namespaces", token="eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln")
