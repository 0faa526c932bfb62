"""`remuda up` dies at what no machine's ordinary life passes: it has moved, so that hosts are to be told of another
address; and there are Jobs that somebody suspends, or that are not to stay.
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import msgspec

from remuda.capi.types import MACHINE
from remuda.jobs import COMMAND, MANAGED_BY, marks
from remuda.jobs.marks import FILE, JobKey
from remuda.kube.core import JOBS, PODS, ROLE_BINDINGS, ROLES, SECRETS
from remuda.providers.bootstrap import clusters
from remuda.providers.shared import names
from remuda.providers.shared.drivers import sim
from remuda.providers.shared.drivers.spi import Order
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from tests.faults import register
from tests.faults.machines import scenario
from tests.faults.machines.scenario import NAMESPACE, RetryingClient
from tests.faults.supervised_up import SupervisedUp, running
from tests.lab.limits import LIMIT_SECONDS

_ROUNDS = 8
_LOOK_SECONDS = 0.1
_FOR_EVER, _SHORT = 3600.0, 0.0  # seconds until the server of a Job runs


async def bootstrap(retrying_client: RetryingClient) -> None:
    """Data for a host that never comes for it."""
    references = {
        "bootstrap": {"configRef": {"apiGroup": RKE_BOOTSTRAP.group, "kind": RKE_BOOTSTRAP.name, "name": "m"}},
        "infrastructureRef": {"apiGroup": names.MACHINE_GROUP, "kind": "SimMachine", "name": "m"},
    }
    await retrying_client.make(RKE_BOOTSTRAP.target, NAMESPACE, RKE_BOOTSTRAP.name, "m")
    await retrying_client.make(MACHINE.target, NAMESPACE, MACHINE.name, "m", spec={"clusterName": "c", **references})


async def move(retrying_client: RetryingClient, up: SupervisedUp) -> None:
    """Each life is somewhere else, and hosts are told so."""
    lives = len(up.deaths)
    while len(up.deaths) == lives and not await _stage_done(retrying_client, up.name):
        await asyncio.sleep(_LOOK_SECONDS)
    if len(up.deaths) == lives:
        up.program.kill()
        await up.program.ended()


async def _stage_done(retrying_client: RetryingClient, name: str) -> bool:
    places = {clusters.registration_secret("c"): "command", names.bootstrap_secret("m"): "value"}
    for secret, key in places.items():
        found = await retrying_client.get(SECRETS, NAMESPACE, secret)
        if found is None or f"https://{name}:".encode() not in base64.b64decode(found["data"][key]):
            return False
    return True


async def suspend(retrying_client: RetryingClient, up: SupervisedUp, name: str) -> None:
    """While its program runs; then nothing of it does."""
    await job(retrying_client, up, name, _FOR_EVER)
    await retrying_client.until(JOBS, NAMESPACE, name, lambda obj: (obj or {}).get("status", {}).get("ready"))
    await retrying_client.patch(JOBS, NAMESPACE, name, {"spec": {"suspend": True}})
    await retrying_client.until(JOBS, NAMESPACE, name, lambda obj: scenario._said(obj, "Suspended") == "True")
    async with asyncio.timeout(scenario.PATIENCE_SECONDS):
        while await _active(retrying_client, name):
            await asyncio.sleep(_LOOK_SECONDS)
    await retrying_client.delete(JOBS, NAMESPACE, name)


async def _active(retrying_client: RetryingClient, job: str) -> list[str]:
    pods = [
        await retrying_client.get(PODS, NAMESPACE, name)
        for name in await retrying_client.names(PODS)
        if name.startswith(job)
    ]
    return [pod["metadata"]["name"] for pod in pods if pod and pod["status"]["phase"] in ("Pending", "Running")]


async def expire(retrying_client: RetryingClient, up: SupervisedUp, name: str) -> None:
    await job(retrying_client, up, name, _SHORT, ttlSecondsAfterFinished=0)
    await retrying_client.until(JOBS, NAMESPACE, name, lambda obj: obj is None)


async def job(retrying_client: RetryingClient, up: SupervisedUp, name: str, boot_seconds: float, **fields: int) -> None:
    """As the manager would make it: for a server of the driver sim."""
    order = Order(
        driver="sim", action="create", name=name, hostname=name, namespace=NAMESPACE, machine=name, uid=name,
        cluster="c", owner="us", options={"bootSeconds": boot_seconds}, state_secret=f"{name}-state",
    )  # fmt: skip
    content = {"order.json": msgspec.json.encode(order)}
    data = {key: base64.b64encode(value).decode() for key, value in content.items()}
    await retrying_client.make(SECRETS, NAMESPACE, "Secret", name, data=data)
    await retrying_client.make(SECRETS, NAMESPACE, "Secret", f"{name}-state")
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "update", "patch"]}
    await retrying_client.make(ROLES, NAMESPACE, "Role", "state", rules=[rule])
    await retrying_client.make(
        *(ROLE_BINDINGS, NAMESPACE, "RoleBinding", "state"),
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "state"},
        subjects=[{"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}],
    )
    container = {
        "name": "it",
        "image": "remuda",
        "command": [*COMMAND],
        "volumeMounts": [{"name": "order", "mountPath": "/run/secrets/machine"}],
    }
    volume = {"name": "order", "secret": {"secretName": name}}
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    spec = {"managedBy": MANAGED_BY, "backoffLimit": 0, "template": {"spec": pod}, **fields}
    made = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
    signed = marks.sign(JobKey.load(up.data / FILE), made, {f"secrets/{name}": content}, sim.Sim.needs.rights)
    await retrying_client.make(JOBS, NAMESPACE, "Job", name, metadata=signed["metadata"], spec=spec)


async def test_server_move_and_job_suspension_recover_from_crash_at_every_point(tmp_path: Path) -> None:
    points = register.points("tests/faults/providers/test_corner_points.py")
    async with running(tmp_path, points, names=("127.0.0.1", "localhost")) as (up, client):
        retrying_client = RetryingClient(client)
        await scenario.prepare(retrying_client)
        await bootstrap(retrying_client)
        for number in range(_ROUNDS):
            if up.left:
                await move(retrying_client, up)
                await suspend(retrying_client, up, f"long-{number}")
                await expire(retrying_client, up, f"short-{number}")
        print(f"{len(up.killed)} kills: {', '.join(up.killed)}")
        assert up.left == set(), "nothing has come here"
        await _nobody_is_left(up)


async def _nobody_is_left(up: SupervisedUp) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):  # the last one may be on its way out
        while up.processes():
            await asyncio.sleep(_LOOK_SECONDS)
