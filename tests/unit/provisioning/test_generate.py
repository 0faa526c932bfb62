"""What is made of a declared cluster."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.provisioning import generate
from remuda.provisioning.generate import CannotBeMade
from tests.unit.provisioning.clusters import declared, desired, pool, read

Json = dict[str, Any]


def test_node_configuration_is_copied_verbatim_to_control_plane() -> None:
    raw = declared(
        pool(),
        spec={"agentEnvVars": [{"name": "A", "value": "b"}]},
        metadata={"labels": {"rke.cattle.io/init-node-machine-id": "m1"}},
        machineGlobalConfig={"cni": "calico", "a-word-of-tomorrow": [1, None]},
        registries={"mirrors": {"*": {}}},
        machinePoolDefaults={"hostnameLengthLimit": 20},
    )
    made = desired(raw).control_plane
    assert made["spec"] == {
        "machineGlobalConfig": {"cni": "calico", "a-word-of-tomorrow": [1, None]},
        "registries": {"mirrors": {"*": {}}},
        "agentEnvVars": [{"name": "A", "value": "b"}],
        "kubernetesVersion": "v1.34.1+k3s1",
        "clusterName": "prairie",
        "managementClusterName": "c-m-12345678",
    }
    assert made["metadata"]["labels"]["rke.cattle.io/init-node-machine-id"] == "m1"


def test_objects_are_generated_after_owners_and_references() -> None:
    made = desired(declared(pool(unhealthyNodeTimeout="1m")))
    assert [obj["kind"] for obj in made.objects] == [
        "Cluster",
        "RKECluster",
        "RKEControlPlane",
        "RKEBootstrapTemplate",
        "SimMachineTemplate",
        "MachineDeployment",
        "MachineHealthCheck",
    ]


def test_infrastructure_of_other_providers_is_passed_through() -> None:
    aws = "infrastructure.cluster.x-k8s.io/v1beta2"
    reference = {"apiVersion": aws, "kind": "AWSMachineTemplate", "name": "w"}
    workers = pool("w", machineConfigRef=reference, workerRole=True, userdata={"inlineUserdata": "#cloud-config"})
    raw = declared(workers, infrastructureRef={"apiVersion": aws, "kind": "AWSCluster", "name": "x"})
    made = desired(raw)
    assert made.infrastructure is None
    assert made.cluster["spec"]["infrastructureRef"] == {
        "apiGroup": "infrastructure.cluster.x-k8s.io",
        "kind": "AWSCluster",
        "name": "x",
    }
    (one,) = made.pools
    assert one.template is None
    assert one.infrastructure == {
        "apiGroup": "infrastructure.cluster.x-k8s.io",
        "kind": "AWSMachineTemplate",
        "name": "w",
    }
    (template,) = made.bootstrap_templates
    assert template["spec"]["template"]["spec"]["userdata"] == {"inlineUserdata": "#cloud-config"}
    config = one.deployment["spec"]["template"]["spec"]["bootstrap"]["configRef"]
    assert config["name"] == template["metadata"]["name"]
    assert template["metadata"]["name"].startswith("prairie-w-")


def test_cluster_infrastructure_is_set_on_rkecluster() -> None:
    raw = declared(
        pool(),
        clusterInfrastructure={"driver": "nspawn", "options": {"a": 1}},
        spec={"cloudCredentialSecretName": "gold"},
    )
    assert desired(raw).infrastructure == {
        "apiVersion": "rke.cattle.io/v1",
        "kind": "RKECluster",
        "metadata": {"name": "prairie", "labels": {"cluster.x-k8s.io/cluster-name": "prairie"}},
        "spec": {"infrastructure": {"driver": "nspawn", "options": {"a": 1}, "cloudCredentialSecretName": "gold"}},
    }


@pytest.mark.parametrize("paused", [False, True])
def test_autoscaler_is_configured_by_annotations(paused: bool) -> None:
    annotations = {"provisioning.cattle.io/cluster-autoscaler-paused": "true"} if paused else {}
    raw = declared(pool(autoscalingMinSize=1, autoscalingMaxSize=3), metadata={"annotations": annotations})
    made = desired(raw)
    key = "paused" if paused else "enabled"
    assert made.cluster["metadata"]["annotations"] == {f"provisioning.cattle.io/cluster-autoscaler-{key}": "true"}
    assert (
        made.pools[0].deployment["metadata"]["annotations"].items()
        >= {
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "1",
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "3",
        }.items()
    )


def test_cluster_without_autoscaling_has_no_annotations() -> None:
    assert "annotations" not in desired(declared(pool())).cluster["metadata"]


def test_pool_credential_overrides_cluster_credential() -> None:
    raw = declared(pool("a"), pool("b", cloudCredentialSecretName="own"), spec={"cloudCredentialSecretName": "shared"})
    made = {one.name: one.template for one in desired(raw).pools}
    for name, expected in (("a", "shared"), ("b", "own")):
        template = made[name]
        assert template is not None
        assert template["spec"]["template"]["spec"]["common"]["cloudCredentialSecretName"] == expected


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (declared(spec={"kubernetesVersion": ""}), "kubernetesVersion is not set"),
        (declared(spec={"rkeConfig": None}), "rkeConfig is not set"),
        (declared(pool("p", workerRole=False)), "machine pool p: no role is set"),
        (declared(pool("p", machineConfigRef={"kind": "", "name": ""})), "name and machineConfigRef"),
        (declared(pool("p", machineConfigRef={"kind": "Simulated", "name": "x"})), "is not a <Driver>Config"),
        (declared(pool("p"), pool("p")), "already used by pool p"),
        (declared(pool("p", unhealthyNodeTimeout="soon")), "machine pool p: is not a duration"),
    ],
)
def test_invalid_cluster_cannot_be_generated_with_reason(raw: Json, words: str) -> None:
    with pytest.raises(CannotBeMade, match=words):
        desired(raw)


def test_all_complaints_are_reported_at_once() -> None:
    raw = declared(pool("a", workerRole=False), pool("b", workerRole=False), spec={"kubernetesVersion": ""})
    assert len(generate.complaints(read(raw))) == 3
