"""Names and metadata: what is accepted, and the exact complaints about what is not."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube import names


@pytest.mark.parametrize("name", ["a", "a-b", "0", "a" * 63])
def test_valid_dns1123_labels_are_accepted(name: str) -> None:
    assert names.dns1123_label(name) == []


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "ä", "a\n"])
def test_invalid_dns1123_labels_are_rejected(name: str) -> None:
    assert names.dns1123_label(name) == [
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
        "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    ]


def test_dotted_label_error_mentions_dots() -> None:
    assert names.dns1123_label("a.b") == ["must not contain dots"]


def test_name_length_limits_are_enforced() -> None:
    assert names.dns1123_label("a" * 64) == ["must be no more than 63 characters"]
    assert names.dns1123_subdomain("a" * 254) == ["must be no more than 253 characters"]
    assert names.label_value("x" * 64) == ["must be no more than 63 bytes"]
    assert len(names.label_value("ä" * 32)) == 2


def test_dns1035_label_must_start_with_a_letter() -> None:
    assert names.dns1035_label("a1") == []
    assert names.dns1035_label("1a")[0].startswith("a DNS-1035 label must consist")


@pytest.mark.parametrize(
    ("key", "complaints"),
    [
        ("app", []),
        ("example.com/app", []),
        ("a/b/c", ["a valid label key must consist"]),
        ("/app", ["prefix part must be non-empty"]),
        ("Bad_/app", ["prefix part a lowercase RFC 1123 subdomain"]),
        ("example.com/", ["name part must be non-empty", "name part must consist of"]),
        ("x" * 64, ["name part must be no more than 63 bytes"]),
        ("-x", ["name part must consist of"]),
    ],
)
def test_qualified_name_parts_are_validated(key: str, complaints: list[str]) -> None:
    found = names.qualified_name(key)
    assert len(found) == len(complaints)
    assert all(text.startswith(start) for text, start in zip(found, complaints, strict=True))


def test_path_segment_rejects_dots_and_slashes() -> None:
    assert names.path_segment("system:node:x") == []
    assert names.path_segment("..") == ["may not be '..'"]
    assert names.path_segment("..", is_prefix=True) == []
    assert names.path_segment("a/b%") == ["may not contain '/'", "may not contain '%'"]


def test_config_map_keys_are_validated() -> None:
    assert names.config_key("A_b.c-1") == []
    assert names.config_key("..") == ["must not be '..'"]
    assert names.config_key("..x") == ["must not start with '..'"]
    assert len(names.config_key("a b")) == 1


@given(st.text(string.ascii_lowercase + "-", min_size=1, max_size=100))
def test_generated_names_fit_a_label(prefix: str) -> None:
    made = names.generate_name(prefix)
    assert len(made) <= 63
    assert made[:-5] == prefix[:58]
    assert set(made[-5:]) <= set("bcdfghjklmnpqrstvwxz2456789")


def test_valid_object_meta_has_no_errors() -> None:
    meta = {
        "name": "web-0",
        "namespace": "default",
        "labels": {"app.kubernetes.io/name": "web", "tier": ""},
        "annotations": {"Example.com/Note": "anything at all, äöü"},
        "finalizers": ["example.com/keep"],
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}],
    }
    assert names.validate_object_meta(meta, namespaced=True) == []


def test_each_invalid_metadata_field_is_reported() -> None:
    meta = {
        "name": "UPPER",
        "labels": {"bad key": "bad value!"},
        "annotations": {"also bad": "x"},
        "finalizers": ["orphan", "foregroundDeletion"],
        "generation": -1,
    }
    found = names.validate_object_meta(meta, namespaced=True)
    assert [error.path for error in found] == [
        "metadata.name",
        "metadata.namespace",
        "metadata.generation",
        "metadata.finalizers",
        "metadata.labels",
        "metadata.labels",
        "metadata.annotations",
    ]
    assert str(found[1]) == "metadata.namespace: Required value"


def test_cluster_scoped_object_must_not_have_a_namespace() -> None:
    found = names.validate_object_meta({"name": "a", "namespace": "b"}, namespaced=False)
    assert [str(error) for error in found] == ["metadata.namespace: Forbidden: not allowed on this type"]


def test_object_name_is_required() -> None:
    found = names.validate_object_meta({}, namespaced=False)
    assert [str(e) for e in found] == ["metadata.name: Required value: name or generateName is required"]


def test_annotations_total_size_is_limited() -> None:
    fits = {"a": "x" * (names.ANNOTATIONS_LIMIT - 1)}
    assert names.validate_annotations(fits, "metadata.annotations") == []
    found = names.validate_annotations({**fits, "b": ""}, "metadata.annotations")
    assert [str(e) for e in found] == ["metadata.annotations: Too long: may not be more than 262144 bytes"]


def test_only_one_owner_reference_may_be_controller() -> None:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1", "controller": True}
    found = names.validate_owner_references([reference, {**reference, "name": "b"}], "metadata.ownerReferences")
    assert len(found) == 1
    assert found[0].detail == (
        'Only one reference can have Controller set to true. Found "true" in references for ConfigMap/a and ConfigMap/b'
    )


def test_incomplete_owner_reference_is_rejected() -> None:
    found = names.validate_owner_references([{}], "metadata.ownerReferences")
    assert [(e.path, e.detail) for e in found] == [
        ("metadata.ownerReferences.apiVersion", "version must not be empty"),
        ("metadata.ownerReferences.kind", "must not be empty"),
        ("metadata.ownerReferences.name", "must not be empty"),
        ("metadata.ownerReferences.uid", "must not be empty"),
    ]


def test_owner_reference_error_shows_fields_in_standard_order() -> None:
    event = {"uid": "1", "controller": None, "name": "a", "kind": "Event", "apiVersion": "v1"}
    found = names.validate_owner_references([event], "p")
    assert list(found[0].bad) == ["apiVersion", "kind", "name", "uid"]


def test_finalizers_of_built_in_kinds_must_be_qualified() -> None:
    found = names.validate_builtin_finalizers(["a/b", "kubernetes", "plain", "orphan"], "metadata.finalizers")
    assert [str(e) for e in found] == [
        'metadata.finalizers[2]: Invalid value: "plain": '
        "name is neither a standard finalizer name nor is it fully qualified"
    ]


def test_event_is_disallowed_as_owner() -> None:
    event = {"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "1"}
    found = names.validate_owner_references([event], "p")
    assert [e.detail for e in found] == ["/v1, Kind=Event is disallowed from being an owner"]


OLD = {
    "name": "a",
    "namespace": "n",
    "uid": "1",
    "resourceVersion": "5",
    "generation": 2,
    "creationTimestamp": "2026-01-02T03:04:05Z",
    "deletionGracePeriodSeconds": 0,
}


def test_unchanged_metadata_update_has_no_errors() -> None:
    assert names.validate_object_meta_update(dict(OLD), OLD) == []


@pytest.mark.parametrize("field", ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"])
def test_identity_is_immutable(field: str) -> None:
    found = names.validate_object_meta_update({**OLD, field: "other"}, OLD)
    assert [str(e) for e in found] == [f'metadata.{field}: Invalid value: "other": field is immutable']


def test_update_requires_resource_version_and_non_decreasing_generation() -> None:
    found = names.validate_object_meta_update({**OLD, "resourceVersion": "", "generation": 1}, OLD)
    assert [str(e) for e in found] == [
        'metadata.resourceVersion: Invalid value: "": must be specified for an update',
        "metadata.generation: Invalid value: 1: must not be decremented",
    ]


def test_deleting_object_accepts_no_new_finalizers() -> None:
    old = {**OLD, "deletionTimestamp": "2026-01-02T03:04:06Z", "finalizers": ["a/b"]}
    assert names.validate_object_meta_update({**old, "finalizers": []}, old) == []
    found = names.validate_object_meta_update({**old, "finalizers": ["a/b", "c/d"]}, old)
    assert [str(e) for e in found] == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"c/d"}'
    ]


def test_managed_fields_are_checked() -> None:
    found = names.validate_managed_fields([{"operation": "Steal", "fieldsType": "X", "manager": "m\x01"}], "m")
    assert [e.detail for e in found] == [
        "must be `Apply` or `Update`",
        "must be `FieldsV1`",
        "invalid character U+0001 (at position 1)",
    ]
