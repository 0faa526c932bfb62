"""`remuda up` dies before and after everything it does for a host on its way in, and the host gets in all the same:
exactly once, with a kubeconfig that works, and nothing of it is left when its Machine goes.

Which points there are is asked of the program: a new step is killed at, or this test fails.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

import remuda.app.up  # with all its steps
from remuda.capi import names as capi_names
from remuda.capi.types import MACHINE
from remuda.kube import kubeconfig
from remuda.kube.core import ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.http import HttpClient
from remuda.providers import names
from remuda.providers.bootstrap import clusters, custom
from remuda.providers.bootstrap.types import CUSTOM_MACHINE, RKE_BOOTSTRAP
from remuda.runtime.steps import all_steps
from tests.faults.machines import story
from tests.faults.machines.story import NAMESPACE, Teller
from tests.faults.machines.test_crash_points import Plane
from tests.lab.server import tail

OURS = ("rkecluster.", "rkebootstrap.", "registration.", "clusterregistration.", "custommachine.")
# Time alone brings these about, or a manager that moves: tests/controllers/test_bootstrap*.py come to them.
ELSEWHERE = ("clusterregistration.forget", "clusterregistration.renew-command", "rkebootstrap.renew-data")
_ROUNDS = 6
_COLLECT_SECONDS = 60.0

Json = dict[str, Any]

assert remuda.app.up


def points() -> set[str]:
    found = [step for step in all_steps() if step.name.startswith(OURS) and not step.name.startswith(ELSEWHERE)]
    return {point for step in found for point in (step.before, step.after)}


class Host:
    """One that asks until it is answered, as the install script does."""

    def __init__(self, plane: Plane, id: str) -> None:
        access = kubeconfig.load(plane.data / "admin.kubeconfig")
        assert isinstance(access.ca, bytes)
        self._url = f"{access.server.rstrip('/')}/v3/connect/agent"
        self._context = ssl.create_default_context(cadata=access.ca.decode())
        self._id = id

    async def connect(self, token: str, **said: str) -> tuple[int, Json]:
        headers = {f"X-Cattle-{name.replace('_', '-')}": value for name, value in said.items()}
        headers |= {"Authorization": f"Bearer {token}", "X-Cattle-Id": self._id}
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(self._url, headers=headers, ssl=self._context) as reply:
                        if reply.status < 500 and reply.status != 429:
                            body = await reply.read()
                            return reply.status, msgspec.json.decode(body) if reply.status == 200 else {"said": body}
                except (OSError, aiohttp.ClientError):
                    pass
                await asyncio.sleep(0.1)


async def follows_its_plan(info: Json) -> None:
    client = HttpClient(kubeconfig.parse(info["kubeConfig"].encode(), origin="the host's"))
    teller = Teller(client)
    try:
        result = {"data": {"applied-checksum": base64.b64encode(b"x").decode()}}
        await teller.patch(SECRETS, info["namespace"], info["secretName"], result)
    finally:
        await client.close()


async def come_from_a_pool(teller: Teller, plane: Plane, name: str) -> None:
    labels = {names.WORKER_ROLE: "true", capi_names.CLUSTER_NAME: "c"}
    spec = {
        "clusterName": "c",
        "bootstrap": {"configRef": {"apiGroup": names.GROUP, "kind": "RKEBootstrap", "name": name}},
        # Never made: whether it is there is none of the bootstrap provider's business.
        "infrastructureRef": {"apiGroup": names.MACHINE_GROUP, "kind": "SimMachine", "name": name},
    }
    await teller.make(RKE_BOOTSTRAP.target, NAMESPACE, "RKEBootstrap", name, metadata={"labels": labels})
    await teller.make(MACHINE.target, NAMESPACE, "Machine", name, metadata={"labels": labels}, spec=spec)
    await teller.until(RKE_BOOTSTRAP.target, NAMESPACE, name, lambda obj: story._said(obj, "Ready") == "True")
    data = await teller.get(SECRETS, NAMESPACE, names.bootstrap_secret(name))
    assert data is not None
    script = base64.b64decode(data["data"]["value"]).decode()
    token = next(line for line in script.splitlines() if "CATTLE_TOKEN=" in line).partition("=")[2].strip("'")
    status, info = await Host(plane, f"id-{name}").connect(token)
    assert status == 200, info
    await follows_its_plan(info)
    assert (await Host(plane, "thief").connect(token))[0] == 403
    stray = {"metadata": {"labels": {names.ETCD_ROLE: "true"}}}
    await teller.patch(SECRETS, NAMESPACE, info["secretName"], stray)
    await teller.until(
        SECRETS,
        NAMESPACE,
        info["secretName"],
        lambda obj: obj is not None and names.ETCD_ROLE not in obj["metadata"]["labels"],
    )
    await teller.until(RKE_BOOTSTRAP.target, NAMESPACE, name, lambda obj: story._said(obj, "AgentConnected") == "True")


async def register(teller: Teller, plane: Plane, id: str) -> str:
    secret = await teller.get(SECRETS, NAMESPACE, clusters.registration_secret("c"))
    assert secret is not None
    token = base64.b64decode(secret["data"]["token"]).decode()
    status, info = await Host(plane, id).connect(token, Role_Worker="true", Node_Name=id)
    assert status == 200, info
    await follows_its_plan(info)
    name = custom.machine_name(id)
    await teller.until(CUSTOM_MACHINE.target, NAMESPACE, name, lambda obj: story._said(obj, "Ready") == "True")
    return name


async def leave(teller: Teller, name: str) -> None:
    await teller.delete(MACHINE.target, NAMESPACE, name)
    await teller.until(MACHINE.target, NAMESPACE, name, lambda obj: obj is None)
    deadline = asyncio.get_running_loop().time() + _COLLECT_SECONDS
    for target in (SECRETS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS):
        while found := [one for one in await teller.names(target) if one.startswith(name)]:
            assert asyncio.get_running_loop().time() < deadline, f"left of {name}: {target.plural} {found}"
            await asyncio.sleep(0.1)


async def test_it_dies_at_every_point_and_every_host_gets_in(tmp_path: Path) -> None:
    plane = Plane(tmp_path)
    plane.points = points()
    client = await plane.start()
    teller = Teller(client)
    try:
        await story.prepare(teller)
        await teller.until(SECRETS, NAMESPACE, clusters.registration_secret("c"), lambda obj: obj is not None)
        for number in range(_ROUNDS):
            await come_from_a_pool(teller, plane, f"m{number}")
            name = await register(teller, plane, f"host-{number}")
            await leave(teller, f"m{number}")
            await leave(teller, name)
            if not plane.points:
                break
        print(f"{len(plane.killed)} kills: {', '.join(plane.killed)}")
        assert plane.points == set(), "the story has not come here"
        assert not plane.findings, "\n".join(plane.findings)
    except BaseException:
        print(f"left: {sorted(plane.points)}\n{tail(plane.program.log, 60)}")
        raise
    finally:
        await client.close()
        await plane.close()
