"""What agents are told of their cluster."""

from __future__ import annotations

import json

from remuda.capi.types import CLUSTER, Cluster
from remuda.kube.objects import Key
from remuda.providers.bootstrap import script
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane


def plane(**spec: object) -> RKEControlPlane:
    return RKE_CONTROL_PLANE.decode(json.dumps({"metadata": {"name": "prairie"}, "spec": spec}).encode())


def cluster(group: str) -> Cluster:
    reference = {"apiGroup": group, "kind": "RKEControlPlane", "name": "prairie"}
    return CLUSTER.decode(
        json.dumps({"metadata": {"name": "p", "namespace": "n"}, "spec": {"controlPlaneRef": reference}}).encode()
    )


def test_environment_contains_user_variables_and_state_directory() -> None:
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    told = script.environment_of(plane(agentEnvVars=[proxy], dataDirectories={"systemAgent": "/opt/agent"}))
    assert told == {"HTTPS_PROXY": "http://proxy:3128", "CATTLE_AGENT_VAR_DIR": "/opt/agent"}


def test_user_cannot_override_state_directory_variable() -> None:
    said = {"name": "CATTLE_AGENT_VAR_DIR", "value": "/elsewhere"}
    assert script.environment_of(plane(agentEnvVars=[said])) == {}


def test_foreign_control_plane_provides_no_environment() -> None:
    assert script.control_plane_of(cluster("rke.cattle.io")) == Key("n", "prairie")
    assert script.control_plane_of(cluster("controlplane.cluster.x-k8s.io")) is None
