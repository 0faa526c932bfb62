"""Pools of machines and their recorded failures.

The last failures of a pool are in a ConfigMap owned by the MachineDeployment, MachineSet or Cluster, so that users can
read them after the failed machine was deleted. A pool without failures has no ConfigMap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET, Machine
from remuda.jobs.types import Job
from remuda.kube import clock
from remuda.kube.core import CONFIG_MAPS
from remuda.kube.errors import NotFound
from remuda.kube.objects import Kind, Object, OwnerReference
from remuda.providers.shared import names
from remuda.providers.shared.jobs import budget, manifests, results
from remuda.providers.shared.jobs.budget import Failure, Rules
from remuda.runtime.caches import Informer
from remuda.runtime.manager import Manager
from remuda.runtime.steps import step

RECORD = step("drivermachine.record-failure", "writes a pool's failures, or resets them after a success")

STATE = "state.json"  # key: `budget.Pool`
READABLE = "failures"  # key: the same for people

log = logging.getLogger(__name__)

_TRYING = "pool that is trying"
_BY_POOL = "pool"
_LONGEST_MESSAGE = 1024


class ConfigMap(Object):
    data: Mapping[str, str] = {}


CONFIG_MAP: Kind[ConfigMap] = Kind("v1", "ConfigMap", "configmaps", ConfigMap)


class PoolName(NamedTuple):
    """Pool whose machines share failures: those of a MachineDeployment, a MachineSet, a control plane or a Cluster."""

    namespace: str
    name: str
    kind: Kind[Any]

    @property
    def place(self) -> str:
        return f"{self.namespace}/{capi_names.label_value(self.name)}"

    @property
    def config_map(self) -> str:
        return names.join(self.name, "machine", "failures")


def pool_of(machine: Machine) -> PoolName:
    labels, namespace = machine.metadata.labels, machine.metadata.namespace
    if name := labels.get(capi_names.DEPLOYMENT_NAME):
        return PoolName(namespace, name, MACHINE_DEPLOYMENT)
    if name := labels.get(capi_names.SET_NAME):
        return PoolName(namespace, name, MACHINE_SET)
    return PoolName(namespace, machine.spec.cluster_name, CLUSTER)


class Pools:
    """Failure records of all pools of a manager. Create it before the caches start."""

    def __init__(self, manager: Manager, rules: Rules, jobs: Informer[Job]) -> None:
        self._client = manager.client
        self._rules = rules
        # A lock exists only while a machine holds it or waits for it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._machines = manager.caches.of(MACHINE)
        self._machines.index(_BY_POOL, lambda machine: (pool_of(machine).place,))
        self._jobs = jobs
        self._jobs.index(_TRYING, _trying)
        self.failures: Informer[ConfigMap] = manager.caches.of(CONFIG_MAP, label_selector=names.MACHINE_FAILURES)
        self.failures.index(_BY_POOL, lambda failures: (_place_of(failures),))

    def lock(self, pool: PoolName) -> asyncio.Lock:
        """Return the lock under which a pool chooses the machine to try, so that two machines never start at once."""
        return self._locks.setdefault(pool.place, asyncio.Lock())

    def look(self, pool: PoolName) -> budget.Pool:
        found = self.failures.get(pool.namespace, pool.config_map)
        return budget.Pool() if found is None else _read(found)

    def trying(self, pool: PoolName) -> list[str]:
        """Return the names of the machines whose server is being created."""
        owners = (job.metadata.controller for job in self._jobs.select(_TRYING, pool.place))
        return sorted(owner.name for owner in owners if owner is not None)

    def waiting(self, failures: ConfigMap) -> list[Machine]:
        """Return the Machines without a server in the pool of a ConfigMap."""
        return self._without_server(_place_of(failures))

    def waiting_for(self, job: Job) -> list[Machine]:
        """Return the Machines that may continue when a Job ends, because their pool tries one at a time."""
        place = f"{job.metadata.namespace}/{job.metadata.labels.get(manifests.POOL, '')}"
        tries_one = any(_read(found).failures >= self._rules.pool_failures for found in self._failures_of(place))
        return self._without_server(place) if tries_one else []

    def _failures_of(self, place: str) -> list[ConfigMap]:
        return self.failures.select(_BY_POOL, place)

    def _without_server(self, place: str) -> list[Machine]:
        found = self._machines.select(_BY_POOL, place)
        return [machine for machine in found if not machine.status.initialization.infrastructure_provisioned]

    async def failed(self, pool: PoolName, machine: Machine, failure: Failure) -> None:
        """Record a failure; repeated calls for the same Job count once."""
        cut = msgspec.structs.replace(failure, message=failure.message[-_LONGEST_MESSAGE:])
        before = self.look(pool)
        after = budget.failed(self._rules, before, cut, clock.parse(failure.time))
        if after is not before:
            await self._write(pool, machine, after)

    async def succeeded(self, pool: PoolName, machine: Machine) -> None:
        before = self.look(pool)
        if before.failures:
            await self._write(pool, machine, budget.succeeded(before))

    async def _write(self, pool: PoolName, machine: Machine, news: budget.Pool) -> None:
        data = {STATE: msgspec.json.encode(news).decode(), READABLE: _for_people(news)}
        present = self.failures.get(pool.namespace, pool.config_map)
        async with RECORD:
            if present is not None:
                # Two machines may fail at once: with the version, one write fails and is repeated, so both count.
                metadata = {"resourceVersion": present.metadata.resource_version}
                patch = {"metadata": metadata, "data": data}
                await self._client.patch(CONFIG_MAPS, pool.namespace, pool.config_map, patch)
                return
            obj = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": pool.config_map,
                    "namespace": pool.namespace,
                    "labels": {names.MACHINE_FAILURES: capi_names.label_value(pool.name)},
                    "ownerReferences": await self._owners(pool, machine),
                },
                "data": data,
            }
            await self._client.create(CONFIG_MAPS, pool.namespace, obj)

    async def _owners(self, pool: PoolName, machine: Machine) -> list[dict[str, Any]]:
        """Return the pool as owner reference, or its Cluster if the pool is deleted."""
        owner = machine.metadata.controller
        if owner is not None and owner.kind == pool.kind.name and owner.group == pool.kind.group:
            return [msgspec.to_builtins(msgspec.structs.replace(owner, controller=False, block_owner_deletion=None))]
        places = ((pool.kind, pool.name), (CLUSTER, machine.spec.cluster_name))
        for kind, name in places:
            try:
                found = kind.decode(await self._client.get(kind.target, pool.namespace, name))
            except NotFound:
                continue
            owner = OwnerReference(
                api_version=kind.api_version, kind=kind.name, name=name, uid=found.metadata.uid, controller=False
            )
            return [msgspec.to_builtins(owner)]
        return []


def _place_of(failures: ConfigMap) -> str:
    return f"{failures.metadata.namespace}/{failures.metadata.labels.get(names.MACHINE_FAILURES, '')}"


def _trying(job: Job) -> Iterable[str]:
    label = job.metadata.labels.get(manifests.POOL)
    if label is not None and job.finished is None and not results.removes(job):
        yield f"{job.metadata.namespace}/{label}"


def _read(found: ConfigMap) -> budget.Pool:
    try:
        return msgspec.json.decode(found.data.get(STATE, "{}"), type=budget.Pool)
    except msgspec.MsgspecError as error:  # a user edited it; only the delay between attempts depends on it
        log.warning("cannot decode %s of ConfigMap %s, treating it as empty: %s", STATE, found.key, error)
        return budget.Pool()


def _for_people(pool: budget.Pool) -> str:
    return "".join(f"{one.time} {one.machine} attempt {one.attempt}: {one.message}\n" for one in pool.history)
