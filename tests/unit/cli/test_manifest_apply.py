"""What is decided before anything is applied: the order, and who owns what."""

from __future__ import annotations

from typing import Any

from remuda.cli.manifest_apply import MANAGER, in_order, taken_over, without_dropped

Json = dict[str, Any]


def obj(api_version: str, kind: str) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "one"}}


def owner(manager: str, fields: Json, *, operation: str = "Update", subresource: str = "") -> Json:
    found: Json = {"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields}
    return found | ({"subresource": subresource} if subresource else {})


def test_apply_order_puts_dependencies_first_and_clusters_last() -> None:
    said = [
        obj("provisioning.cattle.io/v1", "Cluster"),
        obj("rke-machine-config.cattle.io/v1", "ProcessConfig"),
        obj("v1", "Secret"),
        obj("management.cattle.io/v3", "NodeDriver"),
        obj("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        obj("v1", "Namespace"),
    ]
    assert [one["kind"] for one in in_order(said)] == [
        "Namespace",
        "CustomResourceDefinition",
        "NodeDriver",
        "Secret",
        "ProcessConfig",
        "Cluster",
    ]


def test_apply_order_is_stable_for_kinds_of_equal_rank() -> None:
    said = [obj("apps/v1", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet")]
    assert in_order(said) == said


def test_fields_of_kubectl_client_side_apply_are_taken_over() -> None:
    before = [owner("kubectl-client-side-apply", {"f:data": {"f:a": {}}}), owner("controller", {"f:data": {"f:b": {}}})]
    assert taken_over(before, "v1") == [before[1], owner(MANAGER, {"f:data": {"f:a": {}}}, operation="Apply")]


def test_taken_over_fields_are_merged_with_own_fields() -> None:
    before = [
        owner(MANAGER, {"f:data": {"f:a": {}}}, operation="Apply"),
        owner("kubectl-client-side-apply", {"f:data": {"f:b": {}}, "f:metadata": {}}),
    ]
    (after,) = taken_over(before, "v1")
    assert after["fieldsV1"] == {"f:data": {"f:a": {}, "f:b": {}}, "f:metadata": {}}


def test_other_managers_and_status_fields_are_not_taken_over() -> None:
    before = [
        owner("gitops", {"f:spec": {}}, operation="Apply"),
        owner("controller", {"f:spec": {}}),
        owner("kubectl-edit", {"f:status": {}}, subresource="status"),
    ]
    assert taken_over(before, "v1") == before


def test_dry_run_result_loses_fields_that_the_take_over_drops() -> None:
    """A dry run keeps fields of earlier managers that the manifest no longer has; the real apply removes them."""
    earlier = owner("kubectl-edit", {"f:spec": {"f:a": {}, "f:b": {"f:c": {}, "f:d": {}}, "f:shared": {}}})
    kept = [
        owner("controller", {"f:spec": {"f:shared": {}}}),
        owner(MANAGER, {"f:spec": {"f:b": {"f:c": {}}}}, operation="Apply"),
    ]
    spec = {"a": 1, "b": {"c": 1, "d": 1}, "shared": 1, "others": 1}
    live = {"metadata": {"managedFields": [earlier]}, "spec": spec}
    made = {"metadata": {"managedFields": [earlier, *kept]}, "spec": spec}
    assert without_dropped(made, live)["spec"] == {"b": {"c": 1}, "shared": 1, "others": 1}
    assert without_dropped(made, {"metadata": {}, "spec": spec}) == made
