"""A Cluster with machines of a driver for a test of their controller: the test plays Machine, bootstrap and Job.

Jobs end as the test says: what a real one does is tested where Jobs run. Their Pods and conditions are written as a
runner would, and judged by the engine.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET
from remuda.jobs.types import NAME_LABEL
from remuda.kube import clock
from remuda.kube.client import Target
from remuda.kube.core import CONFIG_MAPS, JOBS, PODS, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.objects import Kind
from remuda.providers.bootstrap import definitions as bootstrap_definitions
from remuda.providers.machine import definitions, machine
from remuda.providers.machine.machine import DriverMachines
from remuda.providers.machine.options import Flag, of_flags
from remuda.providers.machine.scope import FoundDriver, MachineContext
from remuda.providers.shared import names
from remuda.providers.shared.drivers.spi import Address
from remuda.providers.shared.jobs import state
from remuda.providers.shared.jobs.budget import Rules
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.jobs.state import State
from remuda.providers.shared.types.bootstrap import AGENT_CONNECTED, RKE_BOOTSTRAP
from remuda.providers.shared.types.machine import machine_kind
from remuda.runtime.manager import Manager
from tests.controllers.engine import PATIENCE_SECONDS, Engine, Json, condition, named

DRIVER = "probe"
KIND = machine_kind(DRIVER)
EVENTS = Target("v1", "events")
MODEL = of_flags(
    DRIVER,
    [
        Flag(name="probe-size", type="string", doc="How large.", default="small"),
        Flag(name="probe-token", type="string", doc="Who pays.", secret=True),
        Flag(name="probe-disk", type="integer", doc="In GB.", default=16),
        Flag(name="probe-tags", type="strings", doc="What it is marked with."),
        Flag(name="probe-namespace", type="string", doc="A word that CEL keeps for itself."),
    ],
    credentials=("token",),
)
FOUND = FoundDriver(name=DRIVER, model=MODEL)
QUICK = Rules(first_seconds=0.2, most_seconds=0.5)
PATIENT = Rules(first_seconds=3600.0, most_seconds=3600.0)
SCRIPT = b"#!/bin/sh\necho hello\n"

_OBJECTS = (JOBS, SECRETS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)


class DriverMachineHarness:
    def __init__(self, engine: Engine, namespace: str) -> None:
        self.engine = engine
        self.namespace = namespace
        self._jobs: set[str] = set()

    @classmethod
    async def create(cls, engine: Engine) -> DriverMachineHarness:
        await engine.install([*definitions.of_driver(MODEL), *bootstrap_definitions.definitions()])
        return cls(engine, await engine.namespace())

    @asynccontextmanager
    async def running(
        self, rules: Rules = QUICK, found: FoundDriver = FOUND, **settings: Any
    ) -> AsyncIterator[Manager]:
        def setup(manager: Manager) -> None:
            world = MachineContext(manager, MachineSettings(rules=rules, **settings))
            machine.index(world)
            self.machines = DriverMachines(world, found)

        async with self.engine.running(self.namespace, setup) as manager:
            self.manager = manager
            yield manager

    async def settled(self) -> None:
        """Nothing left to do until something happens or a timer fires."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.manager.idle:
                await asyncio.sleep(0.01)

    # ---- what there is before a server

    async def cluster(self, *, provisioned: bool = True, **spec: Any) -> None:
        ref = {"apiGroup": names.GROUP, "kind": "RKECluster", "name": "c"}
        obj = {
            "apiVersion": CLUSTER.api_version,
            "kind": "Cluster",
            "metadata": {"name": "c"},
            "spec": {"infrastructureRef": ref, **spec},
        }
        await self.engine.create(CLUSTER.target, self.namespace, obj)
        if provisioned:
            await self.provision_cluster()

    async def provision_cluster(self) -> None:
        status = {"initialization": {"infrastructureProvisioned": True}}
        await self.engine.status(CLUSTER.target, self.namespace, "c", status)

    async def deployment(self, name: str) -> Json:
        return await self._pool(MACHINE_DEPLOYMENT, name)

    async def machine_set(self, name: str) -> Json:
        return await self._pool(MACHINE_SET, name)

    async def _pool(self, kind: Kind[Any], name: str) -> Json:
        template = {
            "spec": {
                "clusterName": "c",
                "bootstrap": {"dataSecretName": "x"},
                "infrastructureRef": {"apiGroup": KIND.group, "kind": "ProbeMachineTemplate", "name": "t"},
            }
        }
        obj = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"name": name},
            "spec": {"clusterName": "c", "replicas": 0, "template": template},
        }
        return await self.engine.create(kind.target, self.namespace, obj)

    async def machine(
        self,
        name: str = "m",
        *,
        pool: str = "",
        of_set: Json | None = None,
        bootstrapped: bool = True,
        options: Json | None = None,
        **common: Any,
    ) -> Json:
        """A Machine with its objects: the Machine first, as Cluster API does it."""
        labels = {capi_names.DEPLOYMENT_NAME: pool} if pool else {}
        owners = []
        if of_set is not None:
            named_so = {"name": named(of_set), "uid": of_set["metadata"]["uid"]}
            labels = {capi_names.SET_NAME: named(of_set)}
            owners = [{"apiVersion": MACHINE.api_version, "kind": "MachineSet", **named_so, "controller": True}]
        config = {"apiGroup": names.GROUP, "kind": RKE_BOOTSTRAP.name, "name": name}
        obj = {
            "apiVersion": MACHINE.api_version,
            "kind": "Machine",
            "metadata": {"name": name, "labels": labels, "ownerReferences": owners},
            "spec": {
                "clusterName": "c",
                "bootstrap": {"configRef": config},
                "infrastructureRef": {"apiGroup": KIND.group, "kind": KIND.name, "name": name},
            },
        }
        owner = await self.engine.create(MACHINE.target, self.namespace, obj)
        if bootstrapped:
            await self.bootstrap(name)
        await self._owned(RKE_BOOTSTRAP.target, RKE_BOOTSTRAP.name, owner, {"clusterName": "c"})
        return await self._owned(KIND.target, KIND.name, owner, {**(options or {}), "common": common})

    async def _owned(self, target: Target, kind: str, owner: Json, spec: Json) -> Json:
        metadata = owner["metadata"]
        reference = {
            "apiVersion": MACHINE.api_version,
            "kind": "Machine",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
        obj = {
            "apiVersion": target.api_version,
            "kind": kind,
            "metadata": {"name": metadata["name"], "ownerReferences": [reference]},
            "spec": spec,
        }
        return await self.engine.create(target, self.namespace, obj)

    async def bootstrap(self, name: str = "m") -> None:
        await self.secret(names.bootstrap_secret(name), value=SCRIPT, format=b"script")
        patch = {"spec": {"bootstrap": {"dataSecretName": names.bootstrap_secret(name)}}}
        await self.engine.patch(MACHINE.target, self.namespace, name, patch)

    async def secret(self, name: str, **data: bytes) -> None:
        encoded = {key.replace("__", "-"): base64.b64encode(value).decode() for key, value in data.items()}
        obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}
        await self.engine.create(SECRETS, self.namespace, obj)

    async def connect(self, name: str = "m") -> None:
        """The host's agent calls."""
        now = {"reason": "Connected", "message": "", "lastTransitionTime": clock.now()}
        status = {"conditions": [{"type": AGENT_CONNECTED, "status": "True", **now}]}
        await self.engine.status(RKE_BOOTSTRAP.target, self.namespace, name, status)

    # ---- the Job

    async def job(self, name: str = "m", *, removes: bool = False) -> Json:
        """The next Job of a machine, as soon as it is there."""
        wanted = "true" if removes else "false"

        def new(jobs: list[Json]) -> Json | None:
            for job in jobs:
                label = job["metadata"]["labels"]["rke.cattle.io/infra-remove"]
                if named(job) == names.provision(name) and label == wanted and job["metadata"]["uid"] not in self._jobs:
                    return job
            return None

        job: Json = await self.engine.when(JOBS, self.namespace, new)
        self._jobs.add(job["metadata"]["uid"])
        return job

    async def jobs(self) -> list[Json]:
        return await self.engine.list(JOBS, self.namespace)

    async def succeed(self, job: Json, found: State | None = None) -> None:
        await self._write_state(job, found or State(phase="bootstrapped", id="i-1", provider_id="probe://i-1"))
        await self._end(job, 0, "")

    async def fail(self, job: Json, message: str = "the cloud is on fire", code: int = 1) -> None:
        await self._end(job, code, message)

    async def _write_state(self, job: Json, found: State) -> None:
        name = job["metadata"]["ownerReferences"][0]["name"]
        data = {state.STATE: base64.b64encode(state.write(found)).decode()}
        await self.engine.patch(SECRETS, self.namespace, names.state_secret(name), {"data": data})

    async def _end(self, job: Json, code: int, message: str) -> None:
        await self._end_pod(job, code, message)
        now = clock.now()
        pair = ("SuccessCriteriaMet", "Complete") if code == 0 else ("FailureTarget", "Failed")
        reason = "CompletionsReached" if code == 0 else "BackoffLimitExceeded"
        conditions = [
            {"type": type, "status": "True", "reason": reason, "message": "", "lastTransitionTime": now}
            for type in pair
        ]
        counts = {"succeeded": 1, "completionTime": now} if code == 0 else {"failed": 1}
        status = {"startTime": now, "conditions": conditions, **counts}
        await self.engine.status(JOBS, self.namespace, named(job), status)

    async def _end_pod(self, job: Json, code: int, message: str) -> None:
        metadata = job["metadata"]
        name = f"{metadata['name'][:50]}-{metadata['uid'][:5]}"
        reference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        template = job["spec"]["template"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {**template["metadata"]["labels"], NAME_LABEL: metadata["name"]},
                "ownerReferences": [reference],
            },
            "spec": template["spec"],
        }
        await self.engine.create(PODS, self.namespace, pod)
        ended = {"exitCode": code, "message": message, "reason": "Completed" if code == 0 else "Error"}
        container = {
            "name": "machine",
            "image": "remuda",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": ended},
        }
        status = {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": [container]}
        await self.engine.status(PODS, self.namespace, name, status)

    # ---- looking

    async def until(self, holds: Any, name: str = "m") -> Json:
        return await self.engine.until(KIND.target, self.namespace, name, holds)

    async def ready(self, name: str = "m") -> Json:
        return await self.until(lambda obj: condition(obj, "Ready").get("status") == "True", name)

    async def says(self, reason: str, name: str = "m", type: str = "Ready") -> Json:
        return await self.until(lambda obj: condition(obj, type).get("reason") == reason, name)

    async def gone(self, name: str = "m") -> None:
        await self.engine.gone(KIND.target, self.namespace, name)

    async def delete(self, name: str = "m") -> None:
        await self.engine.delete(KIND.target, self.namespace, name)

    async def delete_if_there(self, name: str = "m") -> None:
        """Deleted already where a garbage collector was faster."""
        found = await self.engine.get(KIND.target, self.namespace, name)
        if found is not None and not found["metadata"].get("deletionTimestamp"):
            await self.delete(name)

    async def annotate(self, key: str, value: str, name: str = "m") -> None:
        await self.engine.patch(KIND.target, self.namespace, name, {"metadata": {"annotations": {key: value}}})

    async def left(self, name: str = "m") -> list[str]:
        """What there is of a machine's Job and of its state."""
        ours = {names.provision(name), names.credential_secret(name), names.state_secret(name)}
        found = []
        for target in _OBJECTS:
            objects = await self.engine.list(target, self.namespace)
            found += [f"{target.plural} {named(obj)}" for obj in objects if named(obj) in ours]
        return sorted(found)

    async def order(self, name: str = "m") -> Json:
        data = await self.data(names.provision(name))
        return msgspec.json.decode(data["order.json"])  # type: ignore[no-any-return]

    async def data(self, secret: str) -> dict[str, bytes]:
        found = await self.engine.get(SECRETS, self.namespace, secret)
        assert found is not None, secret
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}

    async def failures(self, pool: str) -> Json:
        name = names.join(pool, "machine", "failures")
        found = await self.engine.get(CONFIG_MAPS, self.namespace, name)
        assert found is not None, name
        return found

    async def events(self, reason: str) -> list[str]:
        found = await self.engine.when(
            EVENTS, self.namespace, lambda events: [one for one in events if one["reason"] == reason]
        )
        return [one["message"] for one in found]


BY_USER_DATA = State(
    phase="created",
    id="i-7",
    name="m",
    provider_id="probe:///z/i-7",
    addresses=(Address("InternalIP", "10.0.0.7"), Address("Hostname", "m")),
    failure_domain="z",
    by_user_data=True,
)
