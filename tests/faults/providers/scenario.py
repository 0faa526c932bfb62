"""The life of one cluster of machines of every sort that needs no root: a MachineDeployment on simulated servers, one
machine whose first attempts fail, a host that is a process with a real agent, servers somebody owns, and a host that
registers itself. It grows, follows a plan, shrinks and goes.

The scenario knows how many servers it needs, whatever is killed meanwhile. Whoever looks after it asks again at once
when an attempt has failed, so that nothing waits for a back-off that other tests look at.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import asyncssh
import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT
from remuda.kube import kubeconfig
from remuda.kube.core import NAMESPACES, SECRETS
from remuda.kube.http import HttpClient
from remuda.kube.objects import Kind
from remuda.providers.bootstrap import clusters, custom
from remuda.providers.machine.addresses import ALLOW_LOCAL
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import CUSTOM_MACHINE, RKE_BOOTSTRAP, RKE_BOOTSTRAP_TEMPLATE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.providers.shared.types.machine import NODE_DRIVER, machine_kind, template_kind
from tests.faults import stages
from tests.faults.controllers.view import left_in
from tests.faults.machines.scenario import Json, RetryingClient, ask_again
from tests.faults.providers.hosts import Servers
from tests.faults.providers.proof import complaints
from tests.faults.registration_client import RegistrationClient
from tests.faults.stages import Stage
from tests.faults.supervised_up import SupervisedUp
from tests.lab.existing_servers import USER, ExistingServer, start_all, stop_all
from tests.lab.limits import LIMIT_SECONDS

SIM, PROCESS, EXISTING, DRIFTER = map(machine_kind, ("sim", "process", "existing", "drifter"))
STUBBORN, HOST = "stubborn", "host"
_LABELS = {capi_names.CLUSTER_NAME: "c", names.WORKER_ROLE: "true"}
_PATIENCE_SECONDS = 960.0
_LOOK_SECONDS = 0.3


class MachinesScenario:
    def __init__(self, up: SupervisedUp, client: HttpClient, name: str, existing_servers: ExistingServerPair) -> None:
        self.up = up
        self.client = client
        self.name = name  # of its namespace, and of its cloud
        self.existing_servers = existing_servers
        self.retrying_client = RetryingClient(client)
        self.registration_client = RegistrationClient(kubeconfig.load(up.data / "admin.kubeconfig"))
        self.journal = up.data / "hosts" / "sim" / f"{name}.jsonl"
        self.workers = 3
        self.servers = 1 + self.workers
        self.stages_done = 0  # stages

    def stages(self) -> list[Stage]:
        grow, shrink = partial(self.scale, 5), partial(self.scale, 2)
        return [self.create, self.register, grow, self.follow, shrink, self.delete]

    async def run(self) -> None:
        await stages.run(
            self.stages(),
            (Servers(self.journal, self.registration_client).run(), self._look_after()),
            self._stage_done,
        )

    def _stage_done(self, stage: Stage) -> None:
        self.stages_done += 1
        print(f"{self.name}: {self.stages_done} stages told")

    # the stages

    async def create(self) -> None:
        await self.retrying_client.make(NAMESPACES, "", "Namespace", self.name)
        await self._make(RKE_CLUSTER, "c", {})
        await self._make(CLUSTER, "c", {"infrastructureRef": _reference(RKE_CLUSTER, "c")})
        await self._make_pool()
        await self._make_machine(SIM, STUBBORN, {**self._sim, "failures": 1, "answersLost": 1})
        await self._make_machine(PROCESS, HOST, {})
        await self._make_existing_servers()
        await self.settled()

    async def _make_pool(self) -> None:
        await self._make(RKE_BOOTSTRAP_TEMPLATE, "pool", {"template": {"spec": {}}})
        await self._make(template_kind("sim"), "pool", {"template": {"spec": self._sim}})
        labels = {**_LABELS, capi_names.DEPLOYMENT_NAME: "pool"}
        machine = {
            "clusterName": "c",
            "bootstrap": {"configRef": _reference(RKE_BOOTSTRAP_TEMPLATE, "pool")},
            "infrastructureRef": _reference(template_kind("sim"), "pool"),
        }
        spec = {
            "clusterName": "c",
            "replicas": self.workers,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": machine},
        }
        await self._make(MACHINE_DEPLOYMENT, "pool", spec)

    async def _make_machine(self, kind: Kind[Any], name: str, options: Json) -> None:
        await self._make(kind, name, options)
        await self._make(RKE_BOOTSTRAP, name, {"clusterName": "c"})
        await self._refer(kind, name, {"configRef": _reference(RKE_BOOTSTRAP, name)})

    async def _make_existing_servers(self) -> None:
        """They have bootstrap data of their own, and no agent: the script is what is run over SSH."""
        await self._make_secret("login", privateKey=self.existing_servers.key)
        await self._make_secret("script", value="#!/bin/sh\necho hello\n", format="script")
        for driver in ("existing", "drifter"):
            allowed = {"metadata": {"annotations": {ALLOW_LOCAL: "true"}}}
            await self.retrying_client.patch(NODE_DRIVER.target, "", driver, allowed)
        for kind, ssh_server in ((EXISTING, self.existing_servers.first), (DRIFTER, self.existing_servers.second)):
            options = {"address": ssh_server.name, "sshUser": USER, "common": {"cloudCredentialSecretName": "login"}}
            await self._make(kind, kind.name.lower(), options)
            await self._refer(kind, kind.name.lower(), {"dataSecretName": "script"})

    async def register(self) -> None:
        """A host that somebody made, by the cluster's token."""
        secret = clusters.registration_secret("c")
        await self.retrying_client.until(SECRETS, self.name, secret, lambda obj: obj is not None)
        found = await self.retrying_client.get(SECRETS, self.name, secret)
        assert found is not None
        token = base64.b64decode(found["data"]["token"]).decode()
        await self.registration_client.connect(token, f"id-{self.name}", Role_Worker="true", Node_Name="walk-in")
        name = custom.machine_name(f"id-{self.name}")
        await self.retrying_client.until(CUSTOM_MACHINE.target, self.name, name, lambda obj: _says(obj, "Ready"))

    async def scale(self, workers: int) -> None:
        self.servers += max(0, workers - self.workers)
        self.workers = workers
        await self.retrying_client.patch(MACHINE_DEPLOYMENT.target, self.name, "pool", {"spec": {"replicas": workers}})
        await self.settled()

    async def follow(self) -> None:
        """The agent of the process host has outlived whatever died, and does as it is told."""
        run = {"name": "say", "command": "/bin/sh", "args": ["-c", "echo done >> $REMUDA_HOST_ROOT/done"]}
        plan = msgspec.json.encode({"instructions": [run]})
        secret = names.plan_secret(HOST)
        await self.retrying_client.patch(
            SECRETS, self.name, secret, {"data": {"plan": base64.b64encode(plan).decode()}}
        )
        applied = base64.b64encode(hashlib.sha256(plan).hexdigest().encode()).decode()
        await self.retrying_client.until(
            SECRETS, self.name, secret, lambda obj: ((obj or {}).get("data") or {}).get("applied-checksum") == applied
        )

    async def delete(self) -> None:
        await self.retrying_client.delete(CLUSTER.target, self.name, "c")
        await self.retrying_client.until(CLUSTER.target, self.name, "c", lambda obj: obj is None)
        for secret in ("login", "script"):  # the user's own
            await self.retrying_client.delete(SECRETS, self.name, secret)
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while left := await left_in(self.client, self.name):
                await asyncio.sleep(_LOOK_SECONDS)
        assert left == []
        assert complaints(self.journal, self.servers) == []
        assert self.existing_servers.first.files() + self.existing_servers.second.files() == []
        async with asyncio.timeout(LIMIT_SECONDS):  # the last Job's program may be on its way out
            while self.up.processes():
                await asyncio.sleep(_LOOK_SECONDS)

    # looking

    async def settled(self) -> None:
        """Until there are exactly the machines wanted, and all of them are managed hosts."""
        wanted = {SIM: self.workers + 1, PROCESS: 1, EXISTING: 1, DRIFTER: 1}
        found: dict[str, Json] = {}
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while True:
                    found = {f"{kind.name}/{obj['metadata']['name']}": obj for kind, obj in await self._machines()}
                    counts = {kind: sum(name.startswith(f"{kind.name}/") for name in found) for kind in wanted}
                    if counts == wanted and all(_is_ready(obj) for obj in found.values()):
                        return
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            told = [f"{name}: {obj['metadata']} {obj.get('status')}" for name, obj in found.items()]
            raise AssertionError("\n".join([f"not settled at {self.workers} workers", *told])) from None

    async def _machines(self) -> list[tuple[Kind[Any], Json]]:
        found = []
        for kind in (SIM, PROCESS, EXISTING, DRIFTER):
            listing = await self.retrying_client.until_answered(partial(self.client.list, kind.target, self.name))
            found += [(kind, msgspec.json.decode(item)) for item in listing.items]
        return found

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for kind in (SIM, PROCESS, EXISTING, DRIFTER):
                await ask_again(self.retrying_client, self.client, kind, self.name)

    # applying

    @property
    def _sim(self) -> Json:
        return {"cloud": self.name, "bootSeconds": 0.1}

    async def _make(self, kind: Kind[Any], name: str, spec: Json) -> None:
        await self.retrying_client.make(
            kind.target, self.name, kind.name, name, metadata={"labels": _LABELS}, spec=spec
        )

    async def _make_secret(self, name: str, **data: str) -> None:
        await self.retrying_client.make(SECRETS, self.name, "Secret", name, stringData=data)

    async def _refer(self, kind: Kind[Any], name: str, bootstrap: Json) -> None:
        spec = {"clusterName": "c", "bootstrap": bootstrap, "infrastructureRef": _reference(kind, name)}
        await self._make(MACHINE, name, spec)


class ExistingServerPair(NamedTuple):
    """Servers of somebody's, and the key to them."""

    first: ExistingServer
    second: ExistingServer
    key: str


@asynccontextmanager
async def existing_server_pair(folder: Path) -> AsyncIterator[ExistingServerPair]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    first, second = ExistingServer(folder / "pet-1", "127.0.0.2"), ExistingServer(folder / "pet-2", "127.0.0.3")
    await start_all((first, second), key)
    try:
        yield ExistingServerPair(first, second, key.export_private_key().decode())
    finally:
        await stop_all((first, second))


def _reference(kind: Kind[Any], name: str) -> Json:
    return {"apiGroup": kind.group, "kind": kind.name, "name": name}


def _says(obj: Json | None, type: str) -> bool:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or ()
    return any(one["type"] == type and one["status"] == "True" for one in conditions)


def _is_ready(obj: Json) -> bool:
    return "deletionTimestamp" not in obj["metadata"] and _says(obj, "Ready")
