"""What is decided before anything is applied: the order, and who owns what."""

from __future__ import annotations

from typing import Any

from remuda.cli.manifest_apply import MANAGER, in_order, taken_over

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
