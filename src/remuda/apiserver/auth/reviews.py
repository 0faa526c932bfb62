"""Review kinds: access questions, answered in the status of the created object.

Pure handlers, called by the registry on create; nothing is stored. Each takes the decoded object (which fits its
schema) and returns a new one with its status, or raises upstream's error. A TokenReview's token is echoed in the spec,
as upstream does, and appears nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from remuda.apiserver.auth.authenticate import Authenticator
from remuda.apiserver.auth.rbac import RbacAuthorizer
from remuda.apiserver.auth.tokens import TokenRejected
from remuda.apiserver.auth.user import Attributes, Authorizer, User
from remuda.kube import clock, errors, names
from remuda.kube.cost import Budget, RequestLimits
from remuda.kube.errors import FieldError
from remuda.kube.selectors import (
    SelectorError,
    label_selector_from,
    parse_field_selector,
    parse_label_selector,
    requirement_size_errors,
)

Obj = dict[str, Any]

AUTHORIZATION = "authorization.k8s.io"
AUTHENTICATION = "authentication.k8s.io"


# ---- who is this -------------------------------------------------------------------------------------------------


def token_review(obj: Obj, authenticator: Authenticator) -> Obj:
    spec = obj.get("spec") or {}
    token = spec.get("token") or ""
    if not token:
        raise errors.bad_request("token is required for TokenReview in authentication")
    audiences = tuple(spec.get("audiences") or authenticator.api_audiences)
    try:
        found = authenticator.authenticate_token(token, audiences)
    except TokenRejected as problem:
        return _answered(obj, AUTHENTICATION, "TokenReview", {"user": {}, "error": str(problem)})
    if not set(found.audiences) & set(audiences):
        raise errors.internal("error validating audiences")
    status = {"authenticated": True, "user": user_info(found.user), "audiences": list(found.audiences)}
    return _answered(obj, AUTHENTICATION, "TokenReview", status)


def self_subject_review(user: User, now: float) -> Obj:
    return {
        "kind": "SelfSubjectReview",
        "apiVersion": f"{AUTHENTICATION}/v1",
        "metadata": {"creationTimestamp": clock.rfc3339(now)},
        "status": {"userInfo": user_info(user)},
    }


def user_info(user: User) -> Obj:
    """Return a user as the API shows it, without empty parts."""
    info: Obj = {"username": user.name} if user.name else {}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info


# ---- may they ----------------------------------------------------------------------------------------------------


def subject_access_review(obj: Obj, authorizer: Authorizer, budget: Budget | None = None) -> Obj:
    spec, budget = obj.get("spec") or {}, budget or Budget()
    problems = _spec_errors(spec) + _subject_errors(spec) + _selector_errors(spec, budget) + _metadata_errors(obj)
    return _access_review(obj, "SubjectAccessReview", problems, lambda: _reviewed_user(spec), authorizer, budget)


def self_subject_access_review(obj: Obj, user: User, authorizer: Authorizer, budget: Budget | None = None) -> Obj:
    spec, budget = obj.get("spec") or {}, budget or Budget()
    problems = _spec_errors(spec) + _selector_errors(spec, budget) + _metadata_errors(obj)
    return _access_review(obj, "SelfSubjectAccessReview", problems, lambda: user, authorizer, budget)


def local_subject_access_review(obj: Obj, namespace: str, authorizer: Authorizer, budget: Budget | None = None) -> Obj:
    """Answer a LocalSubjectAccessReview. The namespaces of the request, of the question and of the object (if set) must
    be equal.
    """
    metadata = dict(obj.get("metadata") or {})
    if metadata.setdefault("namespace", namespace) != namespace:
        raise errors.bad_request(f"spec.resourceAttributes.namespace must match namespace: {namespace}")
    obj = {**obj, "metadata": metadata}
    spec, budget = obj.get("spec") or {}, budget or Budget()
    problems = _spec_errors(spec) + _subject_errors(spec) + _selector_errors(spec, budget)
    problems += _metadata_errors(obj, allowed=("namespace",), sentence="must be empty except for namespace")
    problems += _local_errors(spec, namespace)
    return _access_review(obj, "LocalSubjectAccessReview", problems, lambda: _reviewed_user(spec), authorizer, budget)


def _access_review(
    obj: Obj, kind: str, problems: list[FieldError], user: Callable[[], User], authorizer: Authorizer, budget: Budget
) -> Obj:
    if problems:
        # The kind is missing from upstream's message.
        raise errors.invalid_object(AUTHORIZATION, "", "", problems)
    spec = obj["spec"]
    evaluation = _evaluation_error(spec.get("resourceAttributes") or {}, budget)
    decision = authorizer.authorize(user(), attributes_of(spec))
    status: Obj = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    if evaluation:
        status["evaluationError"] = evaluation
    return _answered(obj, AUTHORIZATION, kind, status)


def _reviewed_user(spec: Mapping[str, Any]) -> User:
    extra = {key: tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    return User(spec.get("user") or "", spec.get("uid") or "", tuple(spec.get("groups") or ()), extra)


def attributes_of(spec: Mapping[str, Any]) -> Attributes:
    """Return the attributes that a valid review asks about."""
    resource = spec.get("resourceAttributes")
    if resource is None:
        other = spec["nonResourceAttributes"]
        # An empty path still means a non-resource request; only a rule for every path allows it.
        return Attributes(verb=other.get("verb") or "", path=other.get("path") or "*")
    parts = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Attributes(version=resource.get("version") or "*", **{part: resource.get(part) or "" for part in parts})


def _spec_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and other is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        return [errors.invalid("spec.nonResourceAttributes", _shown(other), detail)]
    if resource is None and other is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [errors.invalid("spec.resourceAttributes", None, detail)]
    return []


def _shown(attributes: Mapping[str, Any]) -> Obj:
    return {"Path": attributes.get("path") or "", "Verb": attributes.get("verb") or ""}


def _subject_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [errors.invalid("spec.user", "", "at least one of user or group must be specified")]


def _local_errors(spec: Mapping[str, Any], namespace: str) -> list[FieldError]:
    found = []
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and (asked := resource.get("namespace") or "") != namespace:
        found.append(errors.invalid("spec.resourceAttributes.namespace", asked, "must match metadata.namespace"))
    if other is not None:
        found.append(errors.invalid("spec.nonResourceAttributes", _shown(other), "disallowed on this kind of request"))
    return found


def _metadata_errors(obj: Obj, allowed: tuple[str, ...] = (), sentence: str = "must be empty") -> list[FieldError]:
    metadata = obj.get("metadata") or {}
    if any(value and key not in (*allowed, "managedFields") for key, value in metadata.items()):
        return [errors.invalid("metadata", metadata, sentence)]
    return []


# ---- selectors in a question: RBAC ignores them, but they must make sense ------------------------------------------


def _selector_errors(spec: Mapping[str, Any], budget: Budget) -> list[FieldError]:
    resource = spec.get("resourceAttributes") or {}
    found = []
    for key in ("fieldSelector", "labelSelector"):
        selector = resource.get(key)
        if selector is not None:
            path = f"spec.resourceAttributes.{key}"
            found += _size_errors(selector, path, budget.limits) or _one_selector_errors(
                selector, path, key == "labelSelector"
            )
    return found


def _size_errors(selector: Mapping[str, Any], path: str, limits: RequestLimits) -> list[FieldError]:
    """Return an error if a selector is too large to be parsed. Any user may send a review."""
    if len(selector.get("rawSelector") or "") > limits.selector_bytes:
        return [errors.too_long(f"{path}.rawSelector", limits.selector_bytes)]
    return requirement_size_errors(selector.get("requirements") or (), f"{path}.requirements", limits)


def _one_selector_errors(selector: Mapping[str, Any], path: str, of_labels: bool) -> list[FieldError]:
    raw, requirements = selector.get("rawSelector") or "", selector.get("requirements") or ()
    found = []
    if raw and requirements:
        found.append(errors.invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements"))
    if not raw and not requirements:
        detail = f"when {path} is specified, requirements or rawSelector is required"
        found.append(errors.required(f"{path}.requirements", detail))
    for index, requirement in enumerate(requirements):
        found += _requirement_errors(requirement, f"{path}.requirements[{index}]", of_labels)
    return found


def _requirement_errors(requirement: Mapping[str, Any], path: str, of_labels: bool) -> list[FieldError]:
    key, operator, values = requirement.get("key") or "", requirement.get("operator"), requirement.get("values")
    found = []
    if not of_labels and not key:
        found.append(errors.required(f"{path}.key", "must be specified"))
    if operator in ("In", "NotIn") and not values:
        found.append(errors.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    if operator in ("Exists", "DoesNotExist") and values:
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        found.append(errors.forbidden(f"{path}.values", detail))
    if of_labels:
        found += [errors.invalid(f"{path}.key", key, text) for text in names.qualified_name(key)]
        for index, value in enumerate(values or ()):
            found += [errors.invalid(f"{path}.values[{index}]", value, text) for text in names.label_value(value)]
    return found


def _evaluation_error(resource: Mapping[str, Any], budget: Budget) -> str:
    """Return a message about invalid selectors, and whether a part of them was valid. Raise the budget's 400."""
    sentences = []
    for key, understood in (("fieldSelector", _understood_fields), ("labelSelector", _understood_labels)):
        selector = resource.get(key)
        if selector is None:
            continue
        requirements = selector.get("requirements") or ()
        good = [one for one in requirements if understood(one)] if requirements else []
        is_bad = len(good) < len(requirements) if requirements else not _parses(key, selector["rawSelector"], budget)
        if is_bad:
            how = "partially ignored" if good else "ignored"
            sentences.append(f"spec.resourceAttributes.{key} {how} due to parse error")
    return "; ".join(sentences)


def _understood_fields(requirement: Mapping[str, Any]) -> bool:
    return requirement.get("operator") in ("In", "NotIn") and len(requirement.get("values") or ()) == 1


def _understood_labels(requirement: Mapping[str, Any]) -> bool:
    try:
        label_selector_from({"matchExpressions": [requirement]})
    except SelectorError:
        return False
    return True


def _parses(key: str, raw: str, budget: Budget) -> bool:
    try:
        (parse_field_selector if key == "fieldSelector" else parse_label_selector)(raw, budget)
    except SelectorError:
        return False
    return True


# ---- what may they -----------------------------------------------------------------------------------------------


def self_subject_rules_review(obj: Obj, user: User, authorizer: RbacAuthorizer) -> Obj:
    namespace = (obj.get("spec") or {}).get("namespace") or ""
    if not namespace:
        raise errors.bad_request("no namespace on request")
    rules, problem = authorizer.rules_for(user, namespace)
    status: Obj = {
        "resourceRules": [_present(rule.to_obj(), "nonResourceURLs") for rule in rules if rule.resources],
        "nonResourceRules": [
            {"verbs": list(rule.verbs or ()), "nonResourceURLs": list(rule.non_resource_urls)}
            for rule in rules
            if rule.non_resource_urls
        ],
        "incomplete": False,
    }
    if problem:
        status["evaluationError"] = problem
    answer: Obj = {"metadata": {}, "spec": {}}
    return _answered(answer, AUTHORIZATION, "SelfSubjectRulesReview", status)


def _present(rule: Obj, *left_out: str) -> Obj:
    return {key: values for key, values in rule.items() if key not in left_out}


def _answered(obj: Obj, group: str, kind: str, status: Obj) -> Obj:
    return {
        "kind": kind,
        "apiVersion": f"{group}/v1",
        "metadata": obj.get("metadata") or {},
        "spec": obj.get("spec") or {},
        "status": status,
    }
