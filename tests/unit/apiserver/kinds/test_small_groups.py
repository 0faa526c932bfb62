"""RBAC, leases, events, storage, scheduling, networking, discovery, webhooks."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.kinds.events import from_core, to_core

from .test_resources import MANIFESTS
from .writing import changed, complaints, created, given, kind, refusals, updated

RBAC = "rbac.authorization.k8s.io"
BINDING = kind("RoleBinding", RBAC)
NEW_EVENT = MANIFESTS["events.k8s.io", "Event"]


def test_role_binding_api_groups_are_defaulted() -> None:
    subjects = [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]
    binding = created(BINDING, roleRef={"kind": "Role", "name": "r"}, subjects=subjects)
    assert binding["roleRef"] == {"kind": "Role", "name": "r", "apiGroup": RBAC}
    assert [subject.get("apiGroup") for subject in binding["subjects"]] == [RBAC, None]


@pytest.mark.parametrize(
    ("resource", "fields", "expected"),
    [
        ("Role", {"rules": [{"apiGroups": [""], "resources": ["pods"]}]}, "rules[0].verbs: Required value: verbs must"),
        (
            "Role",
            {"rules": [{"verbs": ["get"], "resources": ["pods"]}]},
            "rules[0].apiGroups: Required value: resource",
        ),
        ("Role", {"rules": [{"verbs": ["get"], "apiGroups": [""]}]}, "rules[0].resources: Required value: resource"),
        (
            "Role",
            {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
            'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
        ),
        (
            "ClusterRole",
            {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["a"]}]},
            'rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources',
        ),
        ("ClusterRole", {"aggregationRule": {}}, "aggregationRule.clusterRoleSelectors: Required value"),
        ("RoleBinding", {"roleRef": {"kind": "User", "name": "x"}}, 'roleRef.kind: Unsupported value: "User"'),
        ("ClusterRoleBinding", {"roleRef": {"kind": "Role", "name": "x"}}, 'roleRef.kind: Unsupported value: "Role"'),
        ("RoleBinding", {"roleRef": {"kind": "Role"}}, "roleRef.name: Required value"),
        (
            "RoleBinding",
            {"roleRef": {"kind": "Role", "name": "x"}, "subjects": [{"kind": "Robot", "name": "r"}]},
            'subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"',
        ),
        (
            "ClusterRoleBinding",
            {"roleRef": {"kind": "ClusterRole", "name": "x"}, "subjects": [{"kind": "ServiceAccount", "name": "r"}]},
            "subjects[0].namespace: Required value",
        ),
    ],
)
def test_invalid_rbac_object_is_rejected(resource: str, fields: Any, expected: str) -> None:
    found = complaints(kind(resource, RBAC), **fields)
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_role_binding_role_ref_is_immutable() -> None:
    old = created(BINDING, roleRef={"kind": "Role", "name": "r"})
    found = updated(BINDING, old, changed(old, "roleRef.name", "other"))[1]
    assert len(found) == 1
    assert found[0].startswith("roleRef: Invalid value:")
    assert found[0].endswith("cannot change roleRef")


def test_rbac_names_may_hold_colons() -> None:
    check = kind("ClusterRole", RBAC).behaviour.validate_name
    assert check is not None
    assert check("system:node", False) == []
    assert check("a/b", False) == ["may not contain '/'"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"),
        ({"leaseTransitions": -1}, "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"),
        ({"preferredHolder": "x"}, "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined"),
    ],
)
def test_invalid_lease_is_rejected(spec: Any, expected: str) -> None:
    assert complaints(kind("Lease", "coordination.k8s.io"), spec=spec) == [expected]


# -- events -----------------------------------------------------------------------------------------------------------


def test_event_converts_between_events_and_core_groups() -> None:
    resource = kind("Event", "events.k8s.io")
    event = created(resource, **NEW_EVENT, note="hello")
    stored = to_core(event)
    assert stored["apiVersion"] == "v1"
    assert stored["involvedObject"]["name"] == "x"
    assert stored["message"] == "hello"
    assert stored["reportingComponent"] == "example.com/c"
    assert (stored["source"], stored["firstTimestamp"]) == ({}, None)
    assert "regarding" not in stored
    assert from_core(stored) == event
    assert resource.table == kind("Event").table == "events"
    assert (resource.group, resource.group_in_complaints) == ("events.k8s.io", "")
    assert resource.selectable == kind("Event").selectable


def test_core_event_is_readable_through_events_group() -> None:
    old = created(kind("Event"), involvedObject={"kind": "Pod"}, message="m", count=3, source={"component": "kubelet"})
    shown = from_core(dict(old))
    assert (shown["note"], shown["deprecatedCount"]) == ("m", 3)
    assert shown["deprecatedSource"] == {"component": "kubelet"}
    assert "reportingController" not in shown
    assert to_core(shown) == old


@pytest.mark.parametrize(
    ("namespace", "about", "accepted"),
    [("ns", "ns", True), ("ns", "other", False), ("ns", "", False), ("default", "", True)],
)
def test_event_namespace_must_match_involved_object(namespace: str, about: str, accepted: bool) -> None:
    found = complaints(kind("Event"), metadata={"namespace": namespace}, involvedObject={"namespace": about})
    expected = f'involvedObject.namespace: Invalid value: "{about}": does not match event.namespace'
    assert found == ([] if accepted else [expected])


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("eventTime", None, "eventTime: Required value"),
        ("type", "Odd", "type: Invalid value"),
        ("action", None, "action: Required value"),
        ("reportingController", None, "reportingController: Required value"),
        ("deprecatedCount", 2, 'count: Invalid value: "": needs to be unset'),
        ("note", "x" * 1025, 'message: Invalid value: "": can have at most 1024 characters'),
        ("series", {"count": 1}, 'series.count: Invalid value: "": should be at least 2'),
    ],
)
def test_invalid_events_group_event_is_rejected(field: str, value: Any, expected: str) -> None:
    resource = kind("Event", "events.k8s.io")
    event = changed(given(resource, **NEW_EVENT), field, value)
    resource.behaviour.default(event)
    found = refusals(resource, event)
    assert any(text.startswith(expected) for text in found), found


def test_events_group_event_update_may_change_only_series() -> None:
    resource = kind("Event", "events.k8s.io")
    old = created(resource, **NEW_EVENT)
    series = {"count": 2, "lastObservedTime": "2026-01-02T03:04:06.000000Z"}
    assert updated(resource, old, changed(old, "series", series))[1] == []
    assert updated(resource, old, changed(old, "note", "other"))[1] == [
        'message: Invalid value: "other": field is immutable'
    ]


# -- the rest ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "name", "fields", "expected"),
    [
        ("storage.k8s.io", "StorageClass", {}, "provisioner: Required value"),
        (
            "storage.k8s.io",
            "StorageClass",
            {"provisioner": "a", "reclaimPolicy": "Recycle"},
            "reclaimPolicy: Unsupported",
        ),
        (
            "storage.k8s.io",
            "VolumeAttachment",
            {"spec": {"attacher": "a", "nodeName": "n"}},
            "spec.source: Required value",
        ),
        ("scheduling.k8s.io", "PriorityClass", {"value": 2_000_000_000}, "value: Forbidden: maximum allowed value"),
        (
            "scheduling.k8s.io",
            "PriorityClass",
            {"metadata": {"name": "system-x"}},
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved",
        ),
        ("networking.k8s.io", "IngressClass", {}, "spec.controller: Required value"),
        ("networking.k8s.io", "Ingress", {}, "spec: Invalid value: null: either `defaultBackend` or `rules`"),
        (
            "networking.k8s.io",
            "Ingress",
            {"spec": {"rules": [{"http": {"paths": [{"path": "/", "backend": {}}]}}]}},
            "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
        ),
        (
            "networking.k8s.io",
            "NetworkPolicy",
            {"spec": {"ingress": [{"ports": [{"port": "http", "endPort": 5}]}]}},
            "spec.ingress[0].ports[0].endPort: Invalid value: 5: may not be specified when `port` is non-numeric",
        ),
        ("networking.k8s.io", "NetworkPolicy", {"spec": {"egress": [{"to": [{}]}]}}, "spec.egress[0].to[0]: Required"),
        ("discovery.k8s.io", "EndpointSlice", {"addressType": "IPv9"}, 'addressType: Unsupported value: "IPv9"'),
        (
            "discovery.k8s.io",
            "EndpointSlice",
            {"addressType": "IPv4", "endpoints": [{"addresses": ["::1"]}]},
            'endpoints[0].addresses: Invalid value: "::1": must be an IPv4 address',
        ),
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration",
            {"webhooks": [{"name": "short", "sideEffects": "None", "admissionReviewVersions": ["v1"]}]},
            'webhooks[0].name: Invalid value: "short": should be a domain with at least three segments',
        ),
    ],
)
def test_invalid_objects_of_small_groups_are_rejected(group: str, name: str, fields: Any, expected: str) -> None:
    found = complaints(kind(name, group), **fields)
    assert any(text.startswith(expected) for text in found), found


def test_network_policy_and_webhook_defaults_are_set() -> None:
    policy = created(kind("NetworkPolicy", "networking.k8s.io"), spec={"egress": [{"ports": [{"port": 1}]}]})["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"][0]["ports"] == [{"port": 1, "protocol": "TCP"}]
    configuration = MANIFESTS["admissionregistration.k8s.io", "ValidatingWebhookConfiguration"]
    hook = created(kind("ValidatingWebhookConfiguration", "admissionregistration.k8s.io"), **configuration)["webhooks"][
        0
    ]
    assert (hook["failurePolicy"], hook["matchPolicy"], hook["timeoutSeconds"]) == ("Fail", "Equivalent", 10)
    assert hook["namespaceSelector"] == hook["objectSelector"] == {}


def test_immutable_fields_of_small_groups_cannot_change() -> None:
    for group, name, path, value in [
        ("storage.k8s.io", "StorageClass", "provisioner", "b"),
        ("storage.k8s.io", "VolumeAttachment", "spec.nodeName", "b"),
        ("scheduling.k8s.io", "PriorityClass", "value", 11),
        ("discovery.k8s.io", "EndpointSlice", "addressType", "FQDN"),
        ("networking.k8s.io", "IngressClass", "spec.controller", "b.c/d"),
    ]:
        resource = kind(name, group)
        old = created(resource, **MANIFESTS[group, name])
        assert len(updated(resource, old, changed(old, path, value))[1]) == 1, name
