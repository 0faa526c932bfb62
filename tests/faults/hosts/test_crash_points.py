"""`remuda up` dies before and after everything it does for a host on its way in, and the host gets in all the same:
exactly once, with a kubeconfig that works, and nothing of it is left when its Machine goes.

Which points there are is asked of the program: a new step is killed at, or this test fails.
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from remuda.capi import names as capi_names
from remuda.capi.types import MACHINE
from remuda.kube import kubeconfig
from remuda.kube.core import ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.http import HttpClient
from remuda.providers.bootstrap import clusters, custom
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import CUSTOM_MACHINE, RKE_BOOTSTRAP
from tests.faults import register as steps
from tests.faults.machines import scenario
from tests.faults.machines.scenario import NAMESPACE, RetryingClient
from tests.faults.registration_client import RegistrationClient, RegistrationRefused
from tests.faults.supervised_up import running
from tests.lab.limits import LIMIT_SECONDS

_ROUNDS = 6

Json = dict[str, Any]


async def follows_its_plan(info: Json) -> None:
    client = HttpClient(kubeconfig.parse(info["kubeConfig"].encode(), origin="the host's"))
    retrying_client = RetryingClient(client)
    try:
        result = {"data": {"applied-checksum": base64.b64encode(b"x").decode()}}
        await retrying_client.patch(SECRETS, info["namespace"], info["secretName"], result)
    finally:
        await client.close()


async def come_from_a_pool(retrying_client: RetryingClient, registration_client: RegistrationClient, name: str) -> None:
    labels = {names.WORKER_ROLE: "true", capi_names.CLUSTER_NAME: "c"}
    spec = {
        "clusterName": "c",
        "bootstrap": {"configRef": {"apiGroup": names.GROUP, "kind": "RKEBootstrap", "name": name}},
        # Never made: whether it is there is none of the bootstrap provider's business.
        "infrastructureRef": {"apiGroup": names.MACHINE_GROUP, "kind": "SimMachine", "name": name},
    }
    await retrying_client.make(RKE_BOOTSTRAP.target, NAMESPACE, "RKEBootstrap", name, metadata={"labels": labels})
    await retrying_client.make(MACHINE.target, NAMESPACE, "Machine", name, metadata={"labels": labels}, spec=spec)
    await retrying_client.until(
        RKE_BOOTSTRAP.target, NAMESPACE, name, lambda obj: scenario._said(obj, "Ready") == "True"
    )
    data = await retrying_client.get(SECRETS, NAMESPACE, names.bootstrap_secret(name))
    assert data is not None
    script = base64.b64decode(data["data"]["value"]).decode()
    token = next(line for line in script.splitlines() if "CATTLE_TOKEN=" in line).partition("=")[2].strip("'")
    info = await registration_client.connect(token, f"id-{name}")
    await follows_its_plan(info)
    with pytest.raises(RegistrationRefused, match="403"):
        await registration_client.connect(token, "thief")
    stray = {"metadata": {"labels": {names.ETCD_ROLE: "true"}}}
    await retrying_client.patch(SECRETS, NAMESPACE, info["secretName"], stray)
    await retrying_client.until(
        SECRETS,
        NAMESPACE,
        info["secretName"],
        lambda obj: obj is not None and names.ETCD_ROLE not in obj["metadata"]["labels"],
    )
    await retrying_client.until(
        RKE_BOOTSTRAP.target, NAMESPACE, name, lambda obj: scenario._said(obj, "AgentConnected") == "True"
    )


async def register(retrying_client: RetryingClient, registration_client: RegistrationClient, id: str) -> str:
    secret = await retrying_client.get(SECRETS, NAMESPACE, clusters.registration_secret("c"))
    assert secret is not None
    token = base64.b64decode(secret["data"]["token"]).decode()
    info = await registration_client.connect(token, id, Role_Worker="true", Node_Name=id)
    await follows_its_plan(info)
    name = custom.machine_name(id)
    await retrying_client.until(
        CUSTOM_MACHINE.target, NAMESPACE, name, lambda obj: scenario._said(obj, "Ready") == "True"
    )
    return name


async def leave(retrying_client: RetryingClient, name: str) -> None:
    await retrying_client.delete(MACHINE.target, NAMESPACE, name)
    await retrying_client.until(MACHINE.target, NAMESPACE, name, lambda obj: obj is None)
    deadline = asyncio.get_running_loop().time() + LIMIT_SECONDS
    for target in (SECRETS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS):
        while found := [one for one in await retrying_client.names(target) if one.startswith(name)]:
            assert asyncio.get_running_loop().time() < deadline, f"left of {name}: {target.plural} {found}"
            await asyncio.sleep(0.1)


async def test_host_registration_recovers_from_crash_at_every_point(tmp_path: Path) -> None:
    async with running(tmp_path, steps.points("tests/faults/hosts/test_crash_points.py")) as (up, client):
        retrying_client = RetryingClient(client)
        registration_client = RegistrationClient(kubeconfig.load(up.data / "admin.kubeconfig"))
        await scenario.prepare(retrying_client)
        await retrying_client.until(SECRETS, NAMESPACE, clusters.registration_secret("c"), lambda obj: obj is not None)
        for number in range(_ROUNDS):
            await come_from_a_pool(retrying_client, registration_client, f"m{number}")
            name = await register(retrying_client, registration_client, f"host-{number}")
            await leave(retrying_client, f"m{number}")
            await leave(retrying_client, name)
            if not up.left:
                break
        print(f"{len(up.killed)} kills: {', '.join(up.killed)}")
        assert up.left == set(), "the scenario has not come here"
