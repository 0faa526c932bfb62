from __future__ import annotations

from typing import Any

import pytest

from remuda.capi import names
from remuda.capi.admission.machine import admit
from tests.unit.capi.admission.judging import admitted, an_object, complaints, machine_spec

ALWAYS = {"effect": "NoSchedule", "propagation": "Always"}


def test_machine_defaults_are_filled_in() -> None:
    stored = admitted(admit, an_object(machine_spec(version="1.35.2"), labels={"a": "b"}))
    assert stored["metadata"]["labels"] == {"a": "b", names.CLUSTER_NAME: "c1"}
    assert stored["spec"] == machine_spec(version="v1.35.2", deletion={"nodeDeletionTimeoutSeconds": 10})


def test_explicit_machine_values_are_kept() -> None:
    spec = machine_spec(version="v1.35.2", deletion={"nodeDeletionTimeoutSeconds": 0})
    assert admitted(admit, an_object(spec))["spec"] == spec


def test_cluster_name_label_is_overwritten_from_spec() -> None:
    stored = admitted(admit, an_object(machine_spec(), labels={names.CLUSTER_NAME: "other"}))
    assert stored["metadata"]["labels"] == {names.CLUSTER_NAME: "c1"}


@pytest.mark.parametrize("bootstrap", [{"dataSecretName": "data"}, {"dataSecretName": ""}])
def test_bootstrap_data_secret_name_suffices(bootstrap: dict[str, Any]) -> None:
    assert complaints(admit, an_object(machine_spec(bootstrap=bootstrap))) == []


def test_bootstrap_source_is_required_except_for_machine_pools() -> None:
    nothing = machine_spec(bootstrap={})
    assert complaints(admit, an_object(nothing)) == [
        "spec.bootstrap: Required value: either configRef or dataSecretName must be set"
    ]
    assert complaints(admit, an_object(nothing, labels={names.POOL_NAME: "p"})) == []


def test_machine_cluster_name_is_immutable() -> None:
    moved = an_object(machine_spec(clusterName="c2"))
    assert complaints(admit, moved, an_object(machine_spec())) == ["spec.clusterName: Forbidden: field is immutable"]


@pytest.mark.parametrize("version", ["v1.35.2", "v1.35.2+k3s1", "v1.36.0-rc.1", "v1.36.0-rc.1+rke2r1"])
def test_semantic_versions_are_admitted(version: str) -> None:
    assert complaints(admit, an_object(machine_spec(version=version))) == []


@pytest.mark.parametrize("version", ["latest", "v1.35", "v1", "v1.35.2 "])
def test_invalid_machine_version_is_denied(version: str) -> None:
    (said,) = complaints(admit, an_object(machine_spec(version=version)))
    assert said.endswith("must be a semantic version, as in v1.35.2")


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("example.com/gpu", ""),
        ("dedicated", ""),
        ("node.kubernetes.io/out-of-service", ""),
        ("node.kubernetes.io/unreachable", "belongs to Kubernetes itself"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "belongs to cloud controllers"),
        (names.UNINITIALIZED_TAINT, "is set and removed by Cluster API itself"),
        (names.OUTDATED_REVISION_TAINT, "is set and removed by Cluster API itself"),
        ("node-role.kubernetes.io/master", "has no effect since Kubernetes 1.24"),
        ("node-role.kubernetes.io/control-plane", "cannot be used on worker Machines"),
        ("-a", "name part must consist of alphanumeric characters"),
    ],
)
def test_reserved_taint_keys_are_denied(key: str, complaint: str) -> None:
    found = complaints(admit, an_object(machine_spec(taints=[{"key": "fine", **ALWAYS}, {"key": key, **ALWAYS}])))
    assert len(found) == bool(complaint)
    assert all(said.startswith(f'spec.taints[1].key: Invalid value: "{key}"') and complaint in said for said in found)


def test_control_plane_machine_may_have_control_plane_taint() -> None:
    taints = [{"key": "node-role.kubernetes.io/control-plane", **ALWAYS}]
    assert complaints(admit, an_object(machine_spec(taints=taints), labels={names.CONTROL_PLANE: ""})) == []
