"""What Cluster API is told of a pool."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.clock import BadDuration
from remuda.provisioning import pools
from tests.unit.provisioning.clusters import pool, typed

Json = dict[str, Any]
TEMPLATE = {"apiGroup": "rke-machine.cattle.io", "kind": "SimMachineTemplate", "name": "t"}


def deployment(**more: Any) -> Json:
    return pools.machine_deployment("prairie", typed(pool(**more)), infrastructure=TEMPLATE, bootstrap="b")


def test_default_pool_has_one_replica_oldest_first_and_no_drain() -> None:
    made = deployment()
    spec = made["spec"]
    assert (spec["replicas"], spec["paused"], spec["deletion"]) == (1, False, {"order": "Oldest"})
    assert spec["rollout"] == {"strategy": {"type": "RollingUpdate"}}
    assert spec["selector"]["matchLabels"] == {
        "cluster.x-k8s.io/cluster-name": "prairie",
        "cluster.x-k8s.io/deployment-name": "prairie-servers",
    }
    assert spec["template"]["metadata"]["labels"] == {
        "cattle.io/os": "linux",
        "cluster.x-k8s.io/cluster-name": "prairie",
        "rke.cattle.io/cluster-name": "prairie",
        "cluster.x-k8s.io/deployment-name": "prairie-servers",
        "rke.cattle.io/rke-machine-pool-name": "servers",
        "rke.cattle.io/etcd-role": "true",
        "rke.cattle.io/control-plane-role": "true",
        "cluster.x-k8s.io/control-plane": "true",
    }
    assert spec["template"]["metadata"]["annotations"] == {"machine.cluster.x-k8s.io/exclude-node-draining": "true"}
    assert "deletion" not in spec["template"]["spec"]
    assert pools.machine_health_check("prairie", typed(pool())) is None


def test_pool_labels_cannot_override_controller_labels() -> None:
    made = deployment(labels={"rke.cattle.io/etcd-role": "false", "cluster.x-k8s.io/cluster-name": "other", "a": "b"})
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels["rke.cattle.io/etcd-role"] == "true"
    assert labels["cluster.x-k8s.io/cluster-name"] == "prairie"
    assert made["metadata"]["labels"]["a"] == labels["a"] == "b"


def test_rolling_update_settings_are_copied() -> None:
    made = deployment(rollingUpdate={"maxUnavailable": "50%", "maxSurge": 0})
    assert made["spec"]["rollout"]["strategy"]["rollingUpdate"] == {"maxUnavailable": "50%", "maxSurge": 0}


def test_deployment_labels_and_annotations_are_not_propagated() -> None:
    made = deployment(machineDeploymentLabels={"l": "1"}, machineDeploymentAnnotations={"x/y": "2"})
    assert made["metadata"]["labels"]["l"] == "1"
    assert made["metadata"]["annotations"] == {"x/y": "2"}
    assert "l" not in made["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize(
    ("said", "seconds"), [("90s", 90), ("1h30m", 5400), ("0", 0), ("-5m", 0), ("999999999h", 2**31 - 1)]
)
def test_drain_timeout_uses_go_duration_format(said: str, seconds: int) -> None:
    made = deployment(drainBeforeDelete=True, drainBeforeDeleteTimeout=said)
    assert made["spec"]["template"]["spec"]["deletion"] == {"nodeDrainTimeoutSeconds": seconds}
    with pytest.raises(BadDuration):
        pools.seconds("soon")


def test_health_check_is_created_only_with_timeout() -> None:
    said = pool(unhealthyNodeTimeout="5m", nodeStartupTimeout="0s", maxUnhealthy="2", unhealthyRange="[1-3]")
    made = pools.machine_health_check("prairie", typed(said))
    assert made is not None
    assert made["metadata"]["name"] == "prairie-servers"
    assert made["spec"]["checks"] == {
        "unhealthyNodeConditions": [
            {"type": "Ready", "status": "Unknown", "timeoutSeconds": 300},
            {"type": "Ready", "status": "False", "timeoutSeconds": 300},
        ],
        "nodeStartupTimeoutSeconds": 0,
    }
    assert made["spec"]["remediation"] == {
        "triggerIf": {"unhealthyLessThanOrEqualTo": 2, "unhealthyInRange": "[1-3]"},
    }
    assert pools.machine_health_check("prairie", typed(pool(unhealthyNodeTimeout="0s"))) is None


@pytest.mark.parametrize(("present", "expected"), [(None, 2), (1, 2), (3, 3), (9, 4)])
def test_autoscaled_replicas_are_clamped_to_bounds(present: int | None, expected: int) -> None:
    made = deployment(autoscalingMinSize=2, autoscalingMaxSize=4)
    assert pools.with_replicas(made, present)["spec"]["replicas"] == expected


def test_long_deployment_name_is_truncated_with_hash() -> None:
    name = pools.deployment_name("c" * 40, "p" * 40)
    assert len(name) == 63
    assert name.startswith("c" * 40 + "-p")
