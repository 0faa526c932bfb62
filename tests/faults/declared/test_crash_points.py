"""`remuda up` dies before and after everything it does for a declared cluster, and it is made, changed and removed all
the same: one management Cluster, each object once, and in the end nothing.

Which points there are is asked of the program: a new step is killed at, or this test fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET
from remuda.kube.core import NAMESPACES
from remuda.kube.http import HttpClient
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.providers.shared.types.machine import config_kind, machine_kind, template_kind
from remuda.provisioning.setup import WORKSPACES
from remuda.provisioning.types import CLUSTER, MANAGEMENT_CLUSTER
from tests.faults import register
from tests.faults.machines.scenario import RetryingClient
from tests.faults.supervised_up import running

SUITE = "tests/faults/declared/test_crash_points.py"
CONFIG, TEMPLATE = config_kind("sim"), template_kind("sim")
PLACE = WORKSPACES[0]
_ROUNDS = 4
_ALL = (
    CLUSTER,
    CAPI_CLUSTER,
    RKE_CLUSTER,
    RKE_CONTROL_PLANE,
    CONFIG,
    TEMPLATE,
    MACHINE_DEPLOYMENT,
    MACHINE_SET,
    MACHINE,
    machine_kind("sim"),
)
Json = dict[str, Any]


@pytest.mark.parametrize("side", ["before", "after"])
async def test_declared_cluster_lifecycle_recovers_from_crash_at_every_point(tmp_path: Path, side: str) -> None:
    points = {point for point in register.points(SUITE) if point.endswith(f":{side}")}
    async with running(tmp_path, points) as (up, client):
        retrying_client = RetryingClient(client)
        for number in range(_ROUNDS):
            await live(retrying_client, client, f"c{number}", from_management=bool(number % 2))
            if number and not up.left:
                break
        print(f"{len(up.killed)} kills: {', '.join(up.killed)}")
        assert up.left == set(), "the scenario has not come here"


async def live(retrying_client: RetryingClient, client: HttpClient, name: str, *, from_management: bool) -> None:
    for pool in ("servers", "workers"):
        await retrying_client.make(CONFIG.target, PLACE, CONFIG.name, f"{name}-{pool}")
    pools = [_pool(name, "servers", etcdRole=True, controlPlaneRole=True)]
    workers = _pool(name, "workers", workerRole=True, unhealthyNodeTimeout="1h")
    spec = {"kubernetesVersion": "v1.34.1+k3s1", "rkeConfig": {"machinePools": [*pools, workers]}}
    await retrying_client.make(CLUSTER.target, PLACE, CLUSTER.name, name, spec=spec)
    for pool in ("servers", "workers"):
        await retrying_client.until(
            MACHINE_DEPLOYMENT.target, PLACE, f"{name}-{pool}", lambda obj: _status(obj).get("replicas")
        )
    await retrying_client.patch(CLUSTER.target, PLACE, name, {"spec": {"rkeConfig": {"machinePools": pools}}})
    await retrying_client.until(MACHINE_DEPLOYMENT.target, PLACE, f"{name}-workers", lambda obj: obj is None)
    await retrying_client.until(CLUSTER.target, PLACE, name, lambda obj: _status(obj).get("observedGeneration", 0) > 1)
    twins = await _twins(retrying_client, client, name)
    assert len(twins) == 1, "a second id was given"
    if from_management:
        await retrying_client.delete(MANAGEMENT_CLUSTER.target, "", twins[0])
    else:
        await retrying_client.delete(CLUSTER.target, PLACE, name)
    await retrying_client.until(CLUSTER.target, PLACE, name, lambda obj: obj is None)
    await retrying_client.until(MANAGEMENT_CLUSTER.target, "", twins[0], lambda obj: obj is None)
    await retrying_client.until(NAMESPACES, "", twins[0], lambda obj: obj is None)
    for kind in _ALL:
        listing = await retrying_client.until_answered(lambda kind=kind: client.list(kind.target, PLACE))  # type: ignore[misc]
        for item in listing.items:
            left = msgspec.json.decode(item)["metadata"]["name"]
            await retrying_client.until(kind.target, PLACE, left, lambda obj: obj is None)


def _pool(cluster: str, name: str, **more: Any) -> Json:
    config = {"kind": CONFIG.name, "name": f"{cluster}-{name}"}
    return {"name": name, "quantity": 1, "machineConfigRef": config, **more}


def _status(obj: Json | None) -> Json:
    return (obj or {}).get("status") or {}


async def _twins(retrying_client: RetryingClient, client: HttpClient, name: str) -> list[str]:
    listing = await retrying_client.until_answered(lambda: client.list(MANAGEMENT_CLUSTER.target))
    found = [msgspec.json.decode(item) for item in listing.items]
    return [one["metadata"]["name"] for one in found if one["spec"]["displayName"] == name]
