"""Questions and acts: reviews, tokens and the guard on RBAC, asked of the whole registry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.auth.user import User
from remuda.apiserver.bootstrap import bootstrap
from remuda.kube.client import Target
from tests.unit.apiserver.engine import ACCOUNTS, ADMIN, CLUSTER_ROLES, Engine, loads, refusal

AUTHORIZATION, AUTHENTICATION, RBAC = (
    "authorization.k8s.io/v1",
    "authentication.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
)
ROLES, BINDINGS = Target(RBAC, "roles"), Target(RBAC, "rolebindings")
CLUSTER_BINDINGS = Target(RBAC, "clusterrolebindings")
JANE = User("jane", groups=("system:authenticated",))
POD_READER = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = await Engine.open(tmp_path / "data", upkeep=False)
    await bootstrap(engine.registry)
    await engine.namespace("ns")
    yield engine
    await engine.close()


async def allow(engine: Engine, name: str, *rules: dict[str, Any]) -> None:
    """Jane may do this, everywhere."""
    await engine.create(CLUSTER_ROLES, "", {"metadata": {"name": name}, "rules": list(rules)})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]
    await engine.create(CLUSTER_BINDINGS, "", {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects})


async def ask(
    engine: Engine, user: User, api_version: str, plural: str, spec: dict[str, Any], namespace: str = ""
) -> dict[str, Any]:
    answer = await engine.client_of(user).create(Target(api_version, plural), namespace, {"spec": spec})
    return loads(answer)


GET_PODS = {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "ns"}}


# ---- reviews -----------------------------------------------------------------------------------------------------


async def test_self_subject_access_review_reflects_permissions(engine: Engine) -> None:
    assert not (await ask(engine, JANE, AUTHORIZATION, "selfsubjectaccessreviews", GET_PODS))["status"]["allowed"]
    await allow(engine, "pods", POD_READER)
    answer = await ask(engine, JANE, AUTHORIZATION, "selfsubjectaccessreviews", GET_PODS)
    assert answer["status"]["allowed"]
    assert answer["kind"] == "SelfSubjectAccessReview"


async def test_subject_access_review_evaluates_given_user_and_groups(engine: Engine) -> None:
    spec = {**GET_PODS, "user": "jane"}
    assert not (await ask(engine, ADMIN, AUTHORIZATION, "subjectaccessreviews", spec))["status"]["allowed"]
    masters = {**GET_PODS, "groups": ["system:masters"]}
    assert (await ask(engine, ADMIN, AUTHORIZATION, "subjectaccessreviews", masters))["status"]["allowed"]


async def test_local_subject_access_review_is_limited_to_its_namespace(engine: Engine) -> None:
    spec = {**GET_PODS, "user": "jane"}
    answer = await ask(engine, ADMIN, AUTHORIZATION, "localsubjectaccessreviews", spec, "ns")
    assert answer["metadata"]["namespace"] == "ns"
    assert not answer["status"]["allowed"]
    elsewhere = ask(engine, ADMIN, AUTHORIZATION, "localsubjectaccessreviews", spec, "default")
    assert (await refusal(elsewhere)).code == 422


async def test_self_subject_rules_review_lists_rules(engine: Engine) -> None:
    await allow(engine, "pods", POD_READER)
    answer = await ask(engine, JANE, AUTHORIZATION, "selfsubjectrulesreviews", {"namespace": "ns"})
    assert POD_READER in answer["status"]["resourceRules"]


async def test_self_subject_review_returns_the_caller(engine: Engine) -> None:
    answer = loads(await engine.client_of(JANE).create(Target(AUTHENTICATION, "selfsubjectreviews"), "", {}))
    assert answer["status"]["userInfo"] == {"username": "jane", "groups": ["system:authenticated"]}


async def test_token_review_rejects_unknown_token(engine: Engine) -> None:
    answer = await ask(engine, ADMIN, AUTHENTICATION, "tokenreviews", {"token": "nonsense"})
    assert not answer["status"].get("authenticated")


async def test_reviews_of_other_users_require_permission(engine: Engine) -> None:
    error = await refusal(ask(engine, JANE, AUTHORIZATION, "subjectaccessreviews", {**GET_PODS, "user": "bob"}))
    assert error.code == 403
    error = await refusal(ask(engine, JANE, AUTHENTICATION, "tokenreviews", {"token": "x"}))
    assert error.code == 403


async def test_access_review_response_has_managed_fields_of_request(engine: Engine) -> None:
    answer = await ask(engine, JANE, AUTHORIZATION, "selfsubjectaccessreviews", GET_PODS)
    (entry,) = answer["metadata"]["managedFields"]
    asked: dict[str, Any] = {".": {}, "f:namespace": {}, "f:resource": {}, "f:verb": {}}
    assert entry["fieldsV1"] == {"f:spec": {"f:resourceAttributes": asked}}
    assert entry["manager"] == "test"


async def test_reviews_are_not_stored(engine: Engine) -> None:
    before = engine.store.revision
    await ask(engine, JANE, AUTHORIZATION, "selfsubjectaccessreviews", GET_PODS)
    await ask(engine, ADMIN, AUTHENTICATION, "tokenreviews", {"token": "nonsense"})
    assert engine.store.revision == before


async def test_review_with_wrong_kind_returns_400(engine: Engine) -> None:
    body = {"apiVersion": AUTHORIZATION, "kind": "SubjectAccessReview", "spec": GET_PODS}
    target = Target(AUTHORIZATION, "selfsubjectaccessreviews")
    assert (await refusal(engine.client.create(target, "", body))).code == 400


# ---- tokens ------------------------------------------------------------------------------------------------------


async def token(engine: Engine, user: User = ADMIN, **spec: Any) -> dict[str, Any]:
    client = engine.client_of(user)
    body = {"spec": spec}
    return loads(await client.create(ACCOUNTS, "ns", body, name="robot", subresource="token"))


async def test_service_account_token_is_valid_until_account_is_deleted(engine: Engine) -> None:
    await engine.create(ACCOUNTS, "ns", {"metadata": {"name": "robot"}})
    issued = (await token(engine))["status"]["token"]
    review = await ask(engine, ADMIN, AUTHENTICATION, "tokenreviews", {"token": issued})
    assert review["status"]["authenticated"]
    assert review["status"]["user"]["username"] == "system:serviceaccount:ns:robot"
    await engine.delete(ACCOUNTS, "ns", "robot")
    gone = await ask(engine, ADMIN, AUTHENTICATION, "tokenreviews", {"token": issued})
    assert not gone["status"].get("authenticated")


async def test_token_request_for_missing_account_returns_404(engine: Engine) -> None:
    assert (await refusal(token(engine))).code == 404


async def test_token_request_with_too_short_expiration_returns_422(engine: Engine) -> None:
    await engine.create(ACCOUNTS, "ns", {"metadata": {"name": "robot"}})
    assert (await refusal(token(engine, expirationSeconds=10))).code == 422


async def test_token_request_requires_token_subresource_permission(engine: Engine) -> None:
    await engine.create(ACCOUNTS, "ns", {"metadata": {"name": "robot"}})
    await allow(engine, "accounts", {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["*"]})
    assert (await refusal(token(engine, JANE))).code == 403
    await allow(engine, "tokens", {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]})
    assert (await token(engine, JANE))["status"]["token"]


# ---- nobody gives what they do not have --------------------------------------------------------------------------

RBAC_WRITER = {
    "apiGroups": ["rbac.authorization.k8s.io"],
    "resources": ["*"],
    "verbs": ["create", "update", "patch", "get"],
}


def role(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "r"}, "rules": list(rules)}


async def test_role_write_denies_privilege_escalation(engine: Engine) -> None:
    await allow(engine, "writer", RBAC_WRITER)
    jane = engine.client_of(JANE)
    error = await refusal(jane.create(ROLES, "ns", role(POD_READER)))
    assert error.code == 403
    assert "attempting to grant RBAC permissions not currently held" in error.message
    await allow(engine, "pods", POD_READER)
    await jane.create(ROLES, "ns", role(POD_READER))
    more = {"rules": [{**POD_READER, "verbs": ["delete"]}]}
    assert (await refusal(jane.patch(ROLES, "ns", "r", more))).code == 403
    await jane.patch(ROLES, "ns", "r", {"metadata": {"labels": {"a": "b"}}})


async def test_escalate_verb_permits_granting_unheld_permissions(engine: Engine) -> None:
    await allow(engine, "writer", {**RBAC_WRITER, "verbs": ["create", "escalate"]})
    await engine.client_of(JANE).create(ROLES, "ns", role(POD_READER))


async def test_role_binding_requires_held_permissions_or_bind_verb(engine: Engine) -> None:
    await allow(engine, "writer", RBAC_WRITER)
    jane = engine.client_of(JANE)
    body = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    }
    assert (await refusal(jane.create(BINDINGS, "ns", body))).code == 403
    assert (await refusal(jane.create(CLUSTER_BINDINGS, "", body))).code == 403
    bind = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"]}
    await allow(engine, "bind", {**bind, "resourceNames": ["cluster-admin"]})
    await jane.create(BINDINGS, "ns", body)


async def test_aggregating_role_requires_cluster_admin(engine: Engine) -> None:
    await allow(engine, "writer", RBAC_WRITER)
    body = {**role(), "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    assert (await refusal(engine.client_of(JANE).create(CLUSTER_ROLES, "", body))).code == 403
    await engine.create(CLUSTER_ROLES, "", body)
