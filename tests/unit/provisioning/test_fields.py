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


def test_every_field_has_been_decided_on() -> None:
    assert len(ALL) > 200
    assert {"spec.rkeConfig.machinePools[].taints[].effect", "spec.rkeConfig.registries.mirrors{}.endpoint"} <= {
        row.path for row in ALL
    }


def test_a_new_field_fails_until_it_is_decided_on() -> None:
    table = {Outer: {"inner": DONE}, Inner: {"known": DONE}}
    with pytest.raises(Undecided, match=r"Inner\.forgotten \(spec\.inner\.forgotten\)"):
        list(walk(table, Outer, "spec"))


def test_whatever_is_not_done_says_why() -> None:
    assert [row.path for row in ALL if row.support != DONE and not row.support.why] == []


def test_every_field_says_what_it_is() -> None:
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


def test_the_table_and_this_test_name_the_same_refused_fields() -> None:
    named = {row.path for row in walk(fields.CLUSTER, ClusterSpec, "spec") if row.support.how == "refused"}
    top = {path for path in named if path.count(".") == 1}
    assert top == {f"spec.{name}" for name in REFUSED}


@pytest.mark.parametrize("name", REFUSED)
def test_a_field_that_does_nothing_here_is_refused_by_name(name: str) -> None:
    (complaint,) = fields.complaints(read({name: REFUSED[name]}))
    assert complaint.path == f"spec.{name}"
    assert "not supported" in complaint.detail


def test_the_authorised_endpoint_is_refused_only_when_it_is_asked_for() -> None:
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
def test_manifests_that_spell_out_defaults_pass(spec: dict[str, Any]) -> None:
    assert fields.complaints(read(spec)) == []


def test_what_upstream_does_not_read_either_is_warned_of() -> None:
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


def test_annotations_that_mean_nothing_here_are_warned_of() -> None:
    name = "provisioning.cattle.io/rke2-prime-enabled"
    assert fields.warnings(read({}, **{name: "false"})) == []
    (said,) = fields.warnings(read({}, **{name: "true"}))
    assert name in said


def test_metadata_is_everybodys() -> None:
    assert fields.complaints(Cluster(metadata=ObjectMeta(name="c"))) == []
