"""The stored form: what is left of a JSON object after the real server's structs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.kinds import builtin_resources, idl
from remuda.apiserver.kinds.canonical_form import normalizer
from remuda.kube.errors import StatusError
from remuda.kube.schema import Schema


def normal(group: str, message: str, obj: dict[str, Any]) -> dict[str, Any]:
    normalizer(idl.message(group, "v1", message))(obj)
    return obj


@pytest.mark.parametrize(
    ("group", "message", "before", "after"),
    [
        # Zero values of plain fields vanish; of pointers they stay.
        ("", "EnvVar", {"name": "A", "value": ""}, {"name": "A"}),
        ("", "Capabilities", {"add": [], "drop": ["ALL"]}, {"drop": ["ALL"]}),
        ("", "SecurityContext", {"privileged": False, "runAsUser": 0}, {"privileged": False, "runAsUser": 0}),
        # Nulls are as good as absent.
        ("", "Lifecycle", {"postStart": None, "preStop": {"sleep": None}}, {"preStop": {}}),
        # Some lists are always written; absent they are null.
        ("rbac.authorization.k8s.io", "PolicyRule", {}, {"verbs": None}),
        ("rbac.authorization.k8s.io", "PolicyRule", {"verbs": []}, {"verbs": None}),
        ("apiextensions.k8s.io", "WebhookConversion", {}, {"conversionReviewVersions": None}),
        (
            "apiextensions.k8s.io",
            "WebhookConversion",
            {"conversionReviewVersions": []},
            {"conversionReviewVersions": []},
        ),
        ("", "TypedLocalObjectReference", {"kind": "A", "name": "b"}, {"kind": "A", "name": "b", "apiGroup": None}),
        ("admissionregistration.k8s.io", "WebhookClientConfig", {"caBundle": ""}, {}),
        # Structs that are no pointers are always there; times are null until known.
        ("", "ServiceStatus", {}, {"loadBalancer": {}}),
        (
            "",
            "PodCondition",
            {"type": "Ready"},
            {"type": "Ready", "status": "", "lastProbeTime": None, "lastTransitionTime": None},
        ),
        # Static defaults, also in place of a zero.
        ("", "HTTPGetAction", {"port": 80, "scheme": ""}, {"port": 80, "scheme": "HTTP", "path": "/"}),
        ("", "HostPathVolumeSource", {"path": "/x"}, {"path": "/x", "type": ""}),
        # One spelling for quantities, times and bytes.
        ("", "ResourceRequirements", {"limits": {"cpu": 0.5, "a": "1024Mi"}}, {"limits": {"cpu": "500m", "a": "1Gi"}}),
        # Amounts of resources have no more than thousandths, other quantities may.
        ("", "ResourceRequirements", {"requests": {"cpu": "0.1n"}}, {"requests": {"cpu": "1m"}}),
        ("", "EmptyDirVolumeSource", {"sizeLimit": "5n"}, {"sizeLimit": "5n"}),
        (
            "",
            "ContainerStateRunning",
            {"startedAt": "2026-01-02T05:00:00+02:00"},
            {"startedAt": "2026-01-02T03:00:00Z"},
        ),
        ("", "Secret", {"data": {"a": "YW\nI="}}, {"data": {"a": "YWI="}, "type": "Opaque", "metadata": {}}),
        # What it does not know, it does not touch.
        ("", "EnvVar", {"name": "A", "bogus": None}, {"name": "A", "bogus": None}),
    ],
)
def test_object_is_normalized_to_stored_form(
    group: str, message: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert normal(group, message, before) == after


def test_normalization_removes_empty_fields() -> None:
    assert normal("", "EnvVar", {"name": "A", "value": "", "valueFrom": None}) == {"name": "A"}
    assert normal("meta.k8s.io", "ObjectMeta", {"labels": {}, "finalizers": [], "creationTimestamp": None}) == {}


def test_normalization_prunes_unknown_fields_in_nested_schemas() -> None:
    before = {"type": "array", "items": {"type": "object", "bogus": 1, "items": {"nullable": False, "type": "string"}}}
    after = {"type": "array", "items": {"type": "object", "items": {"type": "string"}}}
    assert normal("apiextensions.k8s.io", "JSONSchemaProps", before) == after
    kept = {"type": "object", "additionalProperties": False, "default": {"a": None, "b": ""}}
    assert normal("apiextensions.k8s.io", "JSONSchemaProps", copy.deepcopy(kept)) == kept


def test_invalid_quantity_returns_400() -> None:
    pod = {"apiVersion": "v1", "spec": {"containers": [{"resources": {"limits": {"cpu": "1x"}}}]}}
    with pytest.raises(
        StatusError, match='Pod in version "v1" cannot be handled as a Pod: quantities must match'
    ) as caught:
        normal("", "Pod", pod)
    assert caught.value.code == 400


def test_too_deep_schema_returns_400() -> None:
    schema: dict[str, Any] = {}
    for _ in range(20_000):
        schema = {"not": schema}
    with pytest.raises(StatusError, match="nested too deeply"):
        normal("apiextensions.k8s.io", "JSONSchemaProps", schema)
    while schema:  # taken apart by hand: Python frees deep nesting by recursion
        schema = schema.get("not", {})


def values(schema: Schema, depth: int = 0) -> st.SearchStrategy[Any]:
    """Objects of a shape, with the zeros and nulls that clients send."""
    if schema.format == "date-time":
        return st.sampled_from([None, "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456+02:00"])
    if schema.ref == "Quantity":
        return st.sampled_from([None, "1", "1000m", 2, 0.5, "1Ki"])
    if schema.format == "byte":
        return st.sampled_from([None, "", "YQ=="])
    if schema.enum:
        return st.sampled_from([None, "", *schema.enum])
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "string": st.sampled_from([None, "", "a"]),
        "integer": st.sampled_from([None, 0, 3]),
        "number": st.sampled_from([None, 0.5]),
        "boolean": st.sampled_from([None, False, True]),
    }
    if schema.type in scalars:
        return scalars[schema.type]
    if depth > 5 or schema.int_or_string or schema.preserve_unknown:
        return st.none()
    if schema.type == "array":
        assert schema.items is not None
        return st.none() | st.lists(values(schema.items, depth + 1), max_size=2)
    if schema.additional is not None:
        return st.none() | st.dictionaries(st.sampled_from("ab"), values(schema.additional, depth + 1), max_size=2)
    optional = {name: later(part, depth + 1) for name, part in schema.properties.items()}
    return st.fixed_dictionaries({}, optional=optional)


def later(schema: Schema, depth: int) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: values(schema, depth))


STORED = [r for r in builtin_resources() if "list" in r.verbs]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_defaulting_is_idempotent(data: st.DataObject) -> None:
    resource = data.draw(st.sampled_from(STORED), label="resource")
    sections = {name for name in resource.schema.properties if name not in ("apiVersion", "kind", "metadata")}
    section = data.draw(st.sampled_from(sorted(sections) or ["metadata"]), label="section")
    value = data.draw(values(resource.schema.properties[section]), label="value")
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "x"}, section: value}
    resource.behaviour.default(obj)
    once = copy.deepcopy(obj)
    resource.behaviour.default(obj)
    assert obj == once
