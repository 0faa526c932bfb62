"""Labels, annotations, owners, finalizers: what metadata accepts."""

from __future__ import annotations

from typing import Any

from tests.interop.semantics.trial import Trial, case


def _create(t: Trial, **metadata: Any) -> None:
    t.post(t.configmaps(), {"metadata": {"name": "a", **metadata}})


@case("metadata")
def a_bad_label_key(t: Trial) -> None:
    _create(t, labels={"bad key": "v"})


@case("metadata")
def a_label_key_with_two_slashes(t: Trial) -> None:
    _create(t, labels={"a/b/c": "v"})


@case("metadata")
def a_label_key_that_is_too_long(t: Trial) -> None:
    _create(t, labels={"x" * 64: "v"})


@case("metadata")
def a_label_key_with_a_bad_prefix(t: Trial) -> None:
    _create(t, labels={"Bad_/x": "v"})


@case("metadata")
def a_bad_label_value(t: Trial) -> None:
    _create(t, labels={"x": "not ok!"})


@case("metadata")
def a_label_value_that_is_too_long(t: Trial) -> None:
    _create(t, labels={"x": "v" * 64})


@case("metadata")
def a_label_value_that_is_a_number(t: Trial) -> None:
    _create(t, labels={"x": 5})


@case("metadata")
def a_bad_annotation_key(t: Trial) -> None:
    _create(t, annotations={"bad key": "v"})


@case("metadata")
def annotations_that_are_too_large(t: Trial) -> None:
    _create(t, annotations={"x": "v" * (256 * 1024)})


@case("metadata")
def annotation_keys_may_be_upper_case(t: Trial) -> None:
    _create(t, annotations={"Example.COM/Key": "anything äöü"})


@case("metadata")
def empty_maps_and_lists_vanish(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, {"metadata": {"name": "a", "labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": []}})
    t.post(path, {"metadata": {"name": "b", "labels": None, "annotations": None}, "data": {}})


@case("metadata")
def a_bad_finalizer(t: Trial) -> None:
    _create(t, finalizers=["no good"])


@case("metadata")
def a_finalizer_without_a_domain(t: Trial) -> None:
    _create(t, finalizers=["plain"])


@case("metadata")
def two_finalizers_that_exclude_each_other(t: Trial) -> None:
    _create(t, finalizers=["orphan", "foregroundDeletion"])


@case("metadata")
def an_owner_reference_with_holes(t: Trial) -> None:
    _create(t, ownerReferences=[{"apiVersion": "", "kind": "", "name": "", "uid": ""}])


@case("metadata")
def an_owner_reference_without_fields(t: Trial) -> None:
    _create(t, ownerReferences=[{"name": "x"}])


@case("metadata")
def an_event_as_owner(t: Trial) -> None:
    _create(t, ownerReferences=[{"apiVersion": "v1", "kind": "Event", "name": "x", "uid": "1"}])


@case("metadata")
def two_controllers(t: Trial) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "controller": True}
    _create(t, ownerReferences=[{**owner, "name": "x", "uid": "1"}, {**owner, "name": "y", "uid": "2"}])


@case("metadata")
def an_owner_twice(t: Trial) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "11111111-1111-1111-1111-111111111111"}
    path = t.configmaps()
    t.post(path, {"metadata": {"name": "a", "ownerReferences": [owner, owner]}})


@case("metadata")
def managed_fields_cannot_be_forged(t: Trial) -> None:
    path = t.configmaps()
    entry = {
        "manager": "forger",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2001-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {".": {}, "f:k": {}}},
    }
    t.post(path, {"metadata": {"name": "a", "managedFields": [entry]}, "data": {"k": "v"}})
    t.patch(f"{path}/a", {"metadata": {"managedFields": [{**entry, "operation": "Steal"}]}})
    t.patch(f"{path}/a", {"metadata": {"managedFields": [{}]}}, note="an empty entry resets them")


@case("metadata")
def a_field_manager_that_is_too_long(t: Trial) -> None:
    t.post(t.configmaps(), {"metadata": {"name": "a"}}, query={"fieldManager": "x" * 129})


@case("metadata")
def a_field_manager_that_cannot_be_printed(t: Trial) -> None:
    t.post(t.configmaps(), {"metadata": {"name": "a"}}, query={"fieldManager": "x\x07"})


@case("metadata")
def the_user_agent_is_the_manager(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, {"metadata": {"name": "a"}}, headers={"User-Agent": "kubectl/v1.36.3 (linux/amd64) kubernetes/abc"})
    t.post(path, {"metadata": {"name": "b"}}, query={"fieldManager": "named"})


@case("metadata")
def a_namespace_label_is_added(t: Trial) -> None:
    t.post("/api/v1/namespaces", {"metadata": {"name": t.name(), "labels": {"x": "1"}}})
    t.patch(f"/api/v1/namespaces/{t.name()}", {"metadata": {"labels": {"kubernetes.io/metadata.name": "other"}}})


@case("metadata")
def metadata_of_the_wrong_type(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, {"metadata": "a"})
    t.post(path, {"metadata": {"name": 5}})
    t.post(path, {"metadata": {"name": "a", "labels": ["x"]}})
    t.post(path, {"metadata": {"name": "a", "finalizers": "x"}})
    t.post(path, {"metadata": {"name": "a", "creationTimestamp": "yesterday"}})
