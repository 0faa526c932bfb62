from __future__ import annotations

import time
from typing import Any

import pytest

from remuda.apiserver.auth import reviews
from remuda.apiserver.auth.authenticate import Authenticator
from remuda.apiserver.auth.rbac import RbacAuthorizer
from remuda.apiserver.auth.token_authenticators import Authenticated, StaticTokens
from remuda.apiserver.auth.tokens import DEFAULT_ISSUER
from remuda.apiserver.auth.user import User
from remuda.kube.errors import StatusError

from .fakes import RBAC, RbacStore, group_subject, rule, user_subject

JANE = User("jane", "1", ("dev", "system:authenticated"))
PODS = {"verb": "get", "resource": "pods"}
PATH = {"verb": "get", "path": "/x"}
BOTH = "cannot be specified in combination with resourceAttributes"
NEITHER = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


@pytest.fixture
def store() -> RbacStore:
    store = RbacStore()
    store.cluster_role("reader", rule("get", "pods"), rule("get", urls="/x"))
    store.bind_cluster("b", "reader", user_subject("jane"), group_subject("readers"))
    return store


@pytest.fixture
def authorizer(store: RbacStore) -> RbacAuthorizer:
    return RbacAuthorizer(store)


def message(call: Any, *arguments: Any) -> str:
    with pytest.raises(StatusError) as caught:
        call(*arguments)
    text: str = caught.value.message
    return text


# ---- SubjectAccessReview and its kin --------------------------------------------------------------------------------


def sar(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": spec}


def test_subject_access_review_returns_request_with_status(authorizer: RbacAuthorizer) -> None:
    spec = {"resourceAttributes": PODS, "user": "jane"}
    assert reviews.subject_access_review(sar(spec), authorizer) == {
        "kind": "SubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec,
        "status": {
            "allowed": True,
            "reason": 'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "reader" to User "jane"',
        },
    }


def test_denied_subject_access_review_has_no_reason(authorizer: RbacAuthorizer) -> None:
    answer = reviews.subject_access_review(sar({"resourceAttributes": PODS, "user": "joe"}), authorizer)
    assert answer["status"] == {"allowed": False}


def test_subject_access_review_accepts_groups_only_and_paths(authorizer: RbacAuthorizer) -> None:
    spec = {"nonResourceAttributes": PATH, "groups": ["readers"]}
    assert reviews.subject_access_review(sar(spec), authorizer)["status"]["allowed"]
    masters = {"resourceAttributes": PODS, "groups": ["system:masters"]}
    assert reviews.subject_access_review(sar(masters), authorizer)["status"] == {"allowed": True}


def test_subject_access_review_with_empty_path_is_non_resource(store: RbacStore, authorizer: RbacAuthorizer) -> None:
    store.cluster_role("reader", rule("*", "*", "*"))
    spec = {"nonResourceAttributes": {"verb": "get"}, "user": "jane"}
    assert not reviews.subject_access_review(sar(spec), authorizer)["status"]["allowed"]
    store.cluster_role("reader", rule("*", urls="*"))
    assert reviews.subject_access_review(sar(spec), authorizer)["status"]["allowed"]


def test_invalid_subject_access_review_is_rejected(authorizer: RbacAuthorizer) -> None:
    review = reviews.subject_access_review
    invalid = '.authorization.k8s.io "" is invalid: '
    both = sar({"resourceAttributes": PODS, "nonResourceAttributes": PATH, "user": "x"})
    assert message(review, both, authorizer) == (
        invalid + f'spec.nonResourceAttributes: Invalid value: {{"Path":"/x","Verb":"get"}}: {BOTH}'
    )
    assert message(review, sar({}), authorizer) == (
        invalid + f"[spec.resourceAttributes: Invalid value: null: {NEITHER}, "
        'spec.user: Invalid value: "": at least one of user or group must be specified]'
    )
    named = sar({"resourceAttributes": PODS, "user": "x"}, name="q")
    assert message(review, named, authorizer) == invalid + 'metadata: Invalid value: {"name":"q"}: must be empty'
    assert message(review, {}, authorizer) == message(review, sar({}), authorizer)


def test_subject_access_review_accepts_managed_fields_in_metadata(authorizer: RbacAuthorizer) -> None:
    given = sar({"resourceAttributes": PODS, "user": "x"}, managedFields=[{"manager": "m"}])
    assert reviews.subject_access_review(given, authorizer)["metadata"] == {"managedFields": [{"manager": "m"}]}


def test_access_review_with_invalid_selectors_is_rejected(authorizer: RbacAuthorizer) -> None:
    attributes = {
        **PODS,
        "labelSelector": {},
        "fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "", "operator": "In"}]},
    }
    at = "spec.resourceAttributes."
    text = message(reviews.subject_access_review, sar({"resourceAttributes": attributes, "user": "x"}), authorizer)
    assert text == (
        '.authorization.k8s.io "" is invalid: ['
        f'{at}fieldSelector.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements, '
        f"{at}fieldSelector.requirements[0].key: Required value: must be specified, "
        f"{at}fieldSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or "
        f"'NotIn', {at}labelSelector.requirements: Required value: when {at}labelSelector is specified, requirements "
        "or rawSelector is required]"
    )
    labels = {"requirements": [{"key": "a b", "operator": "Exists", "values": ["!"]}]}
    spec = {"resourceAttributes": {**PODS, "labelSelector": labels}}
    text = message(reviews.self_subject_access_review, sar(spec), JANE, authorizer)
    assert f"{at}labelSelector.requirements[0].values: Forbidden: may not be specified" in text
    assert f'{at}labelSelector.requirements[0].key: Invalid value: "a b"' in text
    assert f'{at}labelSelector.requirements[0].values[0]: Invalid value: "!"' in text


def test_unparsable_selectors_are_reported_as_evaluation_error(authorizer: RbacAuthorizer) -> None:
    at = "spec.resourceAttributes."

    def evaluation(**selectors: Any) -> str | None:
        spec = {"resourceAttributes": {**PODS, **selectors}}
        text: str | None = reviews.self_subject_access_review(sar(spec), JANE, authorizer)["status"].get(
            "evaluationError"
        )
        return text

    good, bad = {"key": "b", "operator": "In", "values": ["c"]}, {"key": "a", "operator": "Near"}
    assert evaluation(fieldSelector={"requirements": [good]}, labelSelector={"rawSelector": "a=b"}) is None
    assert evaluation(fieldSelector={"requirements": [bad, good]}, labelSelector={"rawSelector": "!!"}) == (
        f"{at}fieldSelector partially ignored due to parse error; {at}labelSelector ignored due to parse error"
    )
    assert evaluation(fieldSelector={"rawSelector": "a"}, labelSelector={"requirements": [good, bad]}) == (
        f"{at}fieldSelector ignored due to parse error; {at}labelSelector partially ignored due to parse error"
    )


def test_local_subject_access_review_requires_matching_namespace(authorizer: RbacAuthorizer) -> None:
    review = reviews.local_subject_access_review
    invalid = '.authorization.k8s.io "" is invalid: '
    local = {**PODS, "namespace": "default"}
    answer = review(sar({"resourceAttributes": local, "user": "jane"}), "default", authorizer)
    assert answer["metadata"] == {"namespace": "default"}
    assert answer["status"]["allowed"]
    assert message(review, sar({"resourceAttributes": PODS, "user": "x"}), "default", authorizer) == (
        invalid + 'spec.resourceAttributes.namespace: Invalid value: "": must match metadata.namespace'
    )
    assert message(review, sar({"nonResourceAttributes": PATH, "user": "x"}), "default", authorizer) == (
        invalid + 'spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: '
        "disallowed on this kind of request"
    )
    elsewhere = sar({"resourceAttributes": local, "user": "x"}, namespace="other")
    assert "must match namespace: default" in message(review, elsewhere, "default", authorizer)
    named = sar({"resourceAttributes": local, "user": "x"}, name="q")
    assert message(review, named, "default", authorizer).endswith("must be empty except for namespace")


def test_self_subject_access_review_evaluates_the_caller(authorizer: RbacAuthorizer) -> None:
    review = reviews.self_subject_access_review
    assert review(sar({"resourceAttributes": PODS}), JANE, authorizer)["status"]["allowed"]
    assert not review(sar({"resourceAttributes": PODS, "user": "jane"}), User("joe"), authorizer)["status"]["allowed"]
    text = message(review, sar({}), JANE, authorizer)
    assert text == f'.authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: {NEITHER}'


# ---- SelfSubjectRulesReview, SelfSubjectReview ----------------------------------------------------------------------


def test_self_subject_rules_review_lists_rules_and_evaluation_error(
    store: RbacStore, authorizer: RbacAuthorizer
) -> None:
    store.role("ns", "r", rule("list", "secrets", names="a"))
    store.bind("ns", "b", "r", user_subject("jane"))
    store.bind("ns", "b2", "gone", user_subject("jane"))
    answer = reviews.self_subject_rules_review(sar({"namespace": "ns"}), JANE, authorizer)
    assert answer == {
        "kind": "SelfSubjectRulesReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": {},
        "status": {
            "resourceRules": [rule("get", "pods"), rule("list", "secrets", names="a")],
            "nonResourceRules": [rule("get", urls="/x")],
            "incomplete": False,
            "evaluationError": f'role.{RBAC} "gone" not found',
        },
    }
    assert message(reviews.self_subject_rules_review, sar({}), JANE, authorizer) == "no namespace on request"


def test_self_subject_review_returns_user_info() -> None:
    user = User("jane", "1", ("dev",), {"k": ("v",)})
    assert reviews.self_subject_review(user, 0) == {
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"},
        "status": {"userInfo": {"username": "jane", "uid": "1", "groups": ["dev"], "extra": {"k": ["v"]}}},
    }


# ---- TokenReview ----------------------------------------------------------------------------------------------------

AUTHENTICATOR = Authenticator([StaticTokens([("s3cret", JANE)], (DEFAULT_ISSUER,))])


def test_token_review_authenticates_token_for_audience() -> None:
    answer = reviews.token_review({"spec": {"token": "s3cret"}}, AUTHENTICATOR)
    assert answer["spec"] == {"token": "s3cret"}
    assert answer["status"] == {
        "authenticated": True,
        "user": {"username": "jane", "uid": "1", "groups": ["dev", "system:authenticated"]},
        "audiences": [DEFAULT_ISSUER],
    }
    refused = {"user": {}, "error": "invalid bearer token"}
    assert reviews.token_review({"spec": {"token": "bad"}}, AUTHENTICATOR)["status"] == refused
    other = {"token": "s3cret", "audiences": ["vault"]}
    assert reviews.token_review({"spec": other}, AUTHENTICATOR)["status"] == refused
    assert message(reviews.token_review, {"spec": {}}, AUTHENTICATOR) == (
        "token is required for TokenReview in authentication"
    )


class Careless:
    def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Authenticated:
        return Authenticated(JANE, ("something else",))


def test_token_review_fails_when_authenticator_ignores_audiences() -> None:
    text = message(reviews.token_review, {"spec": {"token": "x"}}, Authenticator([Careless()]))
    assert text == "Internal error occurred: error validating audiences"


@pytest.mark.parametrize(
    ("key", "selector", "complaint"),
    [
        ("labelSelector", {"rawSelector": "a=b," * 700_000 + "a"}, "rawSelector: Too long: may not be more than 65536"),
        ("fieldSelector", {"rawSelector": "a=b," * 700_000 + "a"}, "rawSelector: Too long: may not be more than 65536"),
        (
            "labelSelector",
            {"requirements": [{"key": "_"}] * 9000},
            "requirements: Too many: 9000: must have at most 250",
        ),
        (
            "fieldSelector",
            {"requirements": [{"key": "_"}] * 9000},
            "requirements: Too many: 9000: must have at most 250",
        ),
        (
            "labelSelector",
            {"requirements": [{"key": "a", "operator": "In", "values": ["_"] * 9000}]},
            "requirements.values: Too many: 9000: must have at most 5000",
        ),
    ],
)
def test_access_review_with_selector_above_limit_is_rejected_quickly(
    authorizer: RbacAuthorizer, key: str, selector: dict[str, Any], complaint: str
) -> None:
    spec = {"resourceAttributes": {**PODS, key: selector}, "user": "jane"}
    started = time.process_time()
    said = [
        message(reviews.self_subject_access_review, sar(spec), JANE, authorizer),
        message(reviews.subject_access_review, sar(spec), authorizer),
        message(reviews.local_subject_access_review, sar(spec), "", authorizer),
    ]
    assert time.process_time() - started < 0.5  # one of them took 6 s
    assert all(f"spec.resourceAttributes.{key}.{complaint}" in sentence for sentence in said), said


def test_access_review_with_too_many_raw_selector_requirements_is_rejected(authorizer: RbacAuthorizer) -> None:
    spec = {"resourceAttributes": {**PODS, "labelSelector": {"rawSelector": "a=b," * 250 + "a"}}}
    said = message(reviews.self_subject_access_review, sar(spec), JANE, authorizer)
    assert said == "selector has too many requirements: must have at most 250"
