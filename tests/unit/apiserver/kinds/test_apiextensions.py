from __future__ import annotations

from typing import Any

import pytest

from .test_resources import CRD
from .writing import changed, created, given, kind, refusals, updated

DEFINITION = kind("CustomResourceDefinition", "apiextensions.k8s.io")


def complaints_about(path: str, value: Any, *more: tuple[str, Any]) -> list[str]:
    crd = given(DEFINITION, **CRD)
    for where, what in ((path, value), *more):
        crd = changed(crd, where, what)
    DEFINITION.behaviour.default(crd)
    DEFINITION.behaviour.prepare_create(crd)
    DEFINITION.behaviour.default(crd)
    return refusals(DEFINITION, crd)


def test_new_crd_gets_default_names_conversion_and_status() -> None:
    crd = created(DEFINITION, **CRD, status={"storedVersions": ["v9"]})
    assert crd["spec"]["names"] == {
        "plural": "widgets",
        "kind": "Widget",
        "singular": "widget",
        "listKind": "WidgetList",
    }
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    assert crd["status"] == {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": ["v1"],
    }


VERSION = CRD["spec"]["versions"][0]  # type: ignore[index]
COLUMN = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("metadata.name", "x", 'metadata.name: Invalid value: "x": must be spec.names.plural+"."+spec.group'),
        ("spec.group", None, "spec.group: Required value"),
        ("spec.group", "nodots", 'spec.group: Invalid value: "nodots": should be a domain with at least one dot'),
        ("spec.scope", None, "spec.scope: Required value"),
        ("spec.scope", "Both", 'spec.scope: Unsupported value: "Both": supported values: "Cluster", "Namespaced"'),
        ("spec.versions", [], "spec.versions: Invalid value: []: must have exactly one version marked as storage"),
        ("spec.versions", [VERSION, {**VERSION, "storage": False}], "must contain unique version names"),
        ("spec.versions", [VERSION, {**VERSION, "name": "v2"}], "must have exactly one version marked as storage"),
        ("spec.versions.0.schema", None, "spec.versions[0].schema.openAPIV3Schema: Required value"),
        ("spec.versions.0.name", "V1", 'spec.versions[0].name: Invalid value: "V1": a DNS-1035 label'),
        ("spec.names.plural", None, "spec.names.plural: Required value"),
        ("spec.names.kind", "Wid_get", 'spec.names.kind: Invalid value: "Wid_get": may have mixed case, but should'),
        ("spec.names.listKind", "Widget", 'spec.names.listKind: Invalid value: "Widget": kind and listKind may not be'),
        ("spec.names.shortNames", ["W"], 'spec.names.shortNames[0]: Invalid value: "W"'),
        ("spec.versions.0.additionalPrinterColumns", [{**COLUMN, "type": "time"}],
         'spec.additionalPrinterColumns[0].type: Invalid value: "time": must be one of boolean,date,integer'),
        ("spec.versions.0.additionalPrinterColumns", [{**COLUMN, "jsonPath": "spec"}],
         'spec.additionalPrinterColumns[0].JSONPath: Invalid value: "spec": must be a simple json path'),
        ("spec.versions.0.additionalPrinterColumns", [{"type": "string", "jsonPath": "."}],
         "spec.additionalPrinterColumns[0].name: Required value"),
        ("spec.versions.0.subresources", {"scale": {"specReplicasPath": ".x", "statusReplicasPath": ".status.x"}},
         'spec.subresources.scale.specReplicasPath: Invalid value: ".x": should be a json path under .spec'),
        ("spec.versions.0.subresources", {"scale": {"specReplicasPath": ".spec.x"}},
         "spec.subresources.scale.statusReplicasPath: Required value"),
        ("spec.versions.0.deprecationWarning", "x", "can only be set for deprecated versions"),
        ("spec.versions.0.selectableFields", [{"jsonPath": "x"}], "is an invalid path: expected [ or . but got: x"),
        ("spec.conversion", {"strategy": "Webhook"},
         "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook"),
        ("spec.conversion", {"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}},
         "spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook"),
        ("spec.conversion", {"strategy": "Magic"}, 'spec.conversion.strategy: Unsupported value: "Magic"'),
        ("spec.preserveUnknownFields", True, "spec.preserveUnknownFields: Invalid value: true: cannot set to true"),
    ],
)  # fmt: skip
def test_invalid_crd_is_rejected(path: str, value: Any, expected: str) -> None:
    found = complaints_about(path, value)
    assert any(expected in text for text in found), found


@pytest.mark.parametrize(
    ("annotation", "accepted"),
    [
        (None, False),
        ("", False),
        ("yes", False),
        ("unapproved, for testing", True),
        ("https://github.com/kubernetes/kubernetes/pull/1", True),
    ],
)
def test_crd_in_k8s_io_group_requires_approval_annotation(annotation: str | None, accepted: bool) -> None:
    found = complaints_about(
        "spec.group",
        "example.k8s.io",
        ("metadata.name", "widgets.example.k8s.io"),
        ("metadata.annotations", None if annotation is None else {"api-approved.kubernetes.io": annotation}),
    )
    assert (found == []) == accepted, found


def test_crd_in_x_k8s_io_group_needs_no_approval() -> None:
    free = ("spec.group", "cluster.x-k8s.io"), ("metadata.name", "widgets.cluster.x-k8s.io")
    assert complaints_about(*free[0], free[1]) == []


def established(crd: dict[str, Any]) -> dict[str, Any]:
    return changed(crd, "status.conditions", [{"type": "Established", "status": "True"}])


def test_established_crd_has_immutable_fields() -> None:
    old = established(created(DEFINITION, **CRD))
    for path, value, expected in [
        ("spec.scope", "Cluster", 'spec.scope: Invalid value: "Cluster": field is immutable'),
        ("spec.names.kind", "Gadget", 'spec.names.kind: Invalid value: "Gadget": field is immutable'),
        ("spec.group", "other.com", 'spec.group: Invalid value: "other.com": field is immutable'),
    ]:
        assert expected in updated(DEFINITION, old, changed(old, path, value))[1]
    before = created(DEFINITION, **CRD)
    assert updated(DEFINITION, before, changed(before, "spec.scope", "Cluster"))[1] == []


def test_crd_stored_versions_accumulate_and_cannot_be_removed_from_spec() -> None:
    old = established(created(DEFINITION, **CRD))
    versions = [{**VERSION, "storage": False}, {**VERSION, "name": "v2"}]
    new, found = updated(DEFINITION, old, changed(old, "spec.versions", versions))
    assert (new["status"]["storedVersions"], found) == (["v1", "v2"], [])
    assert old["status"]["storedVersions"] == ["v1"]
    _, found = updated(DEFINITION, new, changed(new, "spec.versions", versions[1:]))
    assert [text.split(";")[0] for text in found] == [
        'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions'
    ]


def test_crd_deletion_sets_cleanup_finalizer_and_terminating_condition() -> None:
    crd = established(created(DEFINITION, **CRD))
    DEFINITION.behaviour.prepare_delete(crd)
    assert crd["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    condition = crd["status"]["conditions"][-1]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "Terminating",
        "True",
        "InstanceDeletionPending",
    )
