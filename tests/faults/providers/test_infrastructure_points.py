"""`remuda up` and its Jobs die before and after everything they do for what a cluster shares: it is made once all the
same, stands before the servers there are, and is gone when the cluster is.

Which points there are is asked of the program: a new step is killed at, or this test fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube.core import SECRETS
from remuda.providers.shared.jobs.budget import RETRY
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.providers.shared.types.machine import machine_kind
from tests.faults import register
from tests.faults.machines.scenario import NAMESPACE, PATIENCE_SECONDS, Json, RetryingClient, _said, left
from tests.faults.supervised_up import running
from tests.lab.drivers import processes_below

_ROUNDS = 4
SIM = machine_kind("sim")


def _refused(obj: Json | None) -> bool:
    """The options cannot work, and no Job was killed before it could say so."""
    return _said(obj, "Stalled") == "True" and bool((obj or {})["status"]["infrastructure"].get("hopeless"))


def _endpoint(obj: Json | None) -> str:
    return str((obj or {}).get("spec", {}).get("controlPlaneEndpoint", {}).get("host", ""))


async def cluster(retrying_client: RetryingClient, name: str, spec: Json) -> None:
    ref = {"apiGroup": RKE_CLUSTER.group, "kind": RKE_CLUSTER.name, "name": name}
    await retrying_client.make(RKE_CLUSTER.target, NAMESPACE, RKE_CLUSTER.name, name, spec=spec)
    await retrying_client.make(CLUSTER.target, NAMESPACE, CLUSTER.name, name, spec={"infrastructureRef": ref})


async def server(retrying_client: RetryingClient, cluster: str, name: str) -> None:
    """Of a control plane that nobody provides: a Machine that is told to have a Node."""
    spec = {
        "clusterName": cluster,
        "bootstrap": {"dataSecretName": "data"},
        "infrastructureRef": {"apiGroup": SIM.group, "kind": SIM.name, "name": name},
    }
    await retrying_client.make(SIM.target, NAMESPACE, SIM.name, name, spec={})
    await retrying_client.make(
        MACHINE.target, NAMESPACE, MACHINE.name, name, metadata={"labels": {capi_names.CONTROL_PLANE: ""}}, spec=spec
    )
    await retrying_client.until(
        MACHINE.target, NAMESPACE, name, lambda obj: obj is not None and obj.get("status", {}).get("addresses")
    )
    await retrying_client.patch_status(MACHINE.target, NAMESPACE, name, {"nodeRef": {"name": name}})


async def insist(retrying_client: RetryingClient, name: str, holds: Callable[[Json | None], object]) -> None:
    """Whoever kills five Jobs in a row spends the budget of failures: somebody asks for one more try, each time."""
    asked: set[object] = set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds(found := await retrying_client.get(RKE_CLUSTER.target, NAMESPACE, name)):
            failed = (found or {}).get("status", {}).get("infrastructure", {}).get("countedJob")
            if _said(found, "InfrastructureReady") == "False" and failed and failed not in asked:
                asked.add(failed)
                annotations = {RETRY: f"try-{len(asked)}"}
                await retrying_client.patch(
                    RKE_CLUSTER.target, NAMESPACE, name, {"metadata": {"annotations": annotations}}
                )
            await asyncio.sleep(0.2)


async def share_a_balancer(retrying_client: RetryingClient, name: str) -> None:
    bad = {"infrastructure": {"driver": "process", "options": {"address": "192.0.2.1"}}}
    await cluster(retrying_client, name, bad)
    await insist(retrying_client, name, _refused)
    mended = {"spec": {"infrastructure": {"options": {"address": None}}}}
    await retrying_client.patch(RKE_CLUSTER.target, NAMESPACE, name, mended)
    await insist(retrying_client, name, lambda obj: _said(obj, "InfrastructureReady") == "True")
    await retrying_client.delete(CLUSTER.target, NAMESPACE, name)
    await insist(retrying_client, name, lambda obj: obj is None)
    await retrying_client.until(CLUSTER.target, NAMESPACE, name, lambda obj: obj is None)
    assert await left(retrying_client, f"{name}-cluster") == []


async def move(retrying_client: RetryingClient, name: str) -> None:
    await cluster(retrying_client, name, {})
    one, two = f"{name}-1", f"{name}-2"
    await server(retrying_client, name, one)
    await retrying_client.until(CLUSTER.target, NAMESPACE, name, _endpoint)
    before = _endpoint(await retrying_client.get(CLUSTER.target, NAMESPACE, name))
    await server(retrying_client, name, two)
    await retrying_client.delete(MACHINE.target, NAMESPACE, one)
    await retrying_client.until(CLUSTER.target, NAMESPACE, name, lambda obj: _endpoint(obj) not in ("", before))
    await retrying_client.delete(CLUSTER.target, NAMESPACE, name)
    await retrying_client.until(CLUSTER.target, NAMESPACE, name, lambda obj: obj is None)


async def test_cluster_infrastructure_recovers_from_crash_at_every_point(tmp_path: Path) -> None:
    points = register.points("tests/faults/providers/test_infrastructure_points.py")
    async with running(tmp_path, points) as (up, client):
        retrying_client = RetryingClient(client)
        await retrying_client.make(
            SECRETS, NAMESPACE, "Secret", "data", stringData={"value": "#!/bin/sh\n", "format": "script"}
        )
        for number in range(_ROUNDS):
            await share_a_balancer(retrying_client, f"b{number}")
            await move(retrying_client, f"m{number}")
            if not up.left:
                break
        print(f"{len(up.killed)} kills: {', '.join(up.killed)}")
        assert up.left == set(), "the scenario has not come here"
        assert processes_below(up.data / "hosts" / "process") == []
