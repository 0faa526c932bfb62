"""Every field of a declared cluster has been decided on, and is what the table says."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from remuda.kube.objects import Field, ObjectMeta, Part
from remuda.providers.controlplane.rules.fields import CONTROL_PLANE, DONE, Undecided, walk
from remuda.providers.shared.types.controlplane import RKEControlPlaneSpec
from remuda.provisioning import fields
from remuda.provisioning.types import Cluster, ClusterSpec, ClusterStatus

ALL = [
    *walk(fields.CLUSTER, ClusterSpec, "spec"),
    *walk(fields.CLUSTER, ClusterStatus, "status"),
    *walk(CONTROL_PLANE, RKEControlPlaneSpec, "spec"),
]


def read(spec: dict[str, Any], **annotations: str) -> Cluster:
    return msgspec.convert({"metadata": {"name": "c", "annotations": annotations}, "spec": spec}, Cluster)


class Inner(Part):
    known: str = ""
    forgotten: Annotated[str, Field("Anything.")] = ""


class Outer(Part):
    inner: Inner = Inner()


def test_field_table_covers_all_cluster_fields() -> None:
    assert len(ALL) > 200
    assert {"spec.rkeConfig.machinePools[].taints[].effect", "spec.rkeConfig.registries.mirrors{}.endpoint"} <= {
        row.path for row in ALL
    }


def test_undecided_field_raises() -> None:
    table = {Outer: {"inner": DONE}, Inner: {"known": DONE}}
    with pytest.raises(Undecided, match=r"Inner\.forgotten \(spec\.inner\.forgotten\)"):
        list(walk(table, Outer, "spec"))


def test_unsupported_fields_have_reason() -> None:
    assert [row.path for row in ALL if row.support != DONE and not row.support.why] == []


def test_every_field_has_documentation() -> None:
    assert [row.path for row in ALL if not row.doc] == []


REFUSED: dict[str, Any] = {
    "localClusterAuthEndpoint": {"fqdn": "api.example"},
    "clusterAgentDeploymentCustomization": {"appendTolerations": [{"key": "a"}]},
    "fleetAgentDeploymentCustomization": {"overrideAffinity": {"nodeAffinity": {"x": 1}}},
    "webhookDeploymentCustomization": {"replicaCount": 2},
    "defaultPodSecurityAdmissionConfigurationTemplateName": "rancher-restricted",
    "enableNetworkPolicy": True,
    "redeploySystemAgentGeneration": 1,
    "clusterAPIConfig": {"clusterName": "other"},
}


def test_refused_fields_in_table_match_test() -> None:
    named = {row.path for row in walk(fields.CLUSTER, ClusterSpec, "spec") if row.support.how == "refused"}
    top = {path for path in named if path.count(".") == 1}
    assert top == {f"spec.{name}" for name in REFUSED}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_field_is_rejected_by_name(name: str) -> None:
    (complaint,) = fields.complaints(read({name: REFUSED[name]}))
    assert complaint.path == f"spec.{name}"
    assert "not supported" in complaint.detail


def test_local_auth_endpoint_is_rejected_only_when_enabled() -> None:
    assert fields.complaints(read({"localClusterAuthEndpoint": {"enabled": False, "fqdn": "", "caCerts": ""}})) == []
    (complaint,) = fields.complaints(read({"localClusterAuthEndpoint": {"enabled": True}}))
    assert complaint.path == "spec.localClusterAuthEndpoint"


@pytest.mark.parametrize(
    "spec",
    [
        {"clusterAgentDeploymentCustomization": {"appendTolerations": [], "overrideResourceRequirements": {}}},
        {"enableNetworkPolicy": False, "redeploySystemAgentGeneration": 0},
        {"defaultPodSecurityAdmissionConfigurationTemplateName": ""},
        {"clusterAPIConfig": {"clusterName": ""}},
    ],
)
def test_explicit_default_values_are_accepted(spec: dict[str, Any]) -> None:
    assert fields.complaints(read(spec)) == []


def test_fields_ignored_upstream_are_warned() -> None:
    pool = {
        "name": "p",
        "displayName": "P",
        "machineConfigRef": {"kind": "SimConfig", "name": "c", "uid": "u"},
        "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
    }
    said = fields.warnings(read({"rkeConfig": {"machinePools": [pool]}}))
    assert [each.partition(" ")[0] for each in said] == [
        "spec.rkeConfig.machinePools[0].displayName",
        "spec.rkeConfig.machinePools[0].machineConfigRef.uid",
        "spec.rkeConfig.machinePools[0].taints[0].timeAdded",
    ]


def test_unsupported_annotations_are_warned() -> None:
    name = "provisioning.cattle.io/rke2-prime-enabled"
    assert fields.warnings(read({}, **{name: "false"})) == []
    (said,) = fields.warnings(read({}, **{name: "true"}))
    assert name in said


def test_metadata_is_accepted() -> None:
    assert fields.complaints(Cluster(metadata=ObjectMeta(name="c"))) == []
