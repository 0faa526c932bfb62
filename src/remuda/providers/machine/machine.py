"""The controller of one driver's machines: `<Driver>Machine` → Job → server.

It exists as long as the driver is active and is the same for every driver: differences are in the Job. A reconcile
reads the machine, its Job and their owners, does one thing, and reports in the status what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterable

from remuda.capi import names as capi_names
from remuda.capi.cluster_index import index_by_cluster, members
from remuda.capi.pause import paused
from remuda.capi.types import MACHINE, Cluster, Machine
from remuda.capi.write_rate import STATUS_SECONDS, WriteRate, matters
from remuda.jobs.types import Job
from remuda.kube import conditions
from remuda.kube.conditions import TRUE
from remuda.kube.objects import Key
from remuda.providers.machine import creation, removal, status
from remuda.providers.machine.pools import ConfigMap
from remuda.providers.machine.scope import FINALIZER, FoundDriver, InfraMachineScope, MachineContext
from remuda.providers.shared.jobs import manifests
from remuda.providers.shared.types.bootstrap import AGENT_CONNECTED, RKEBootstrap
from remuda.providers.shared.types.machine import CREATE_JOB, DELETE_JOB, READY, STALLED
from remuda.runtime.outcome import DONE, Blocked, Outcome, soonest
from remuda.runtime.steps import step

PUBLISH = step("drivermachine.publish", "writes a machine's conditions")

CONCURRENCY = 20


def index(world: MachineContext) -> None:
    """Add the index of Machines by cluster. Call it before the caches start."""
    index_by_cluster(world.manager.caches, MACHINE)


class DriverMachines:
    def __init__(self, world: MachineContext, driver: FoundDriver) -> None:
        self.driver = driver  # replaced when the NodeDriver changes; existing machines keep their servers
        self._world = world
        self._kind = driver.kind
        manager = world.manager
        self.name = self._kind.name.lower()
        self._informer = manager.caches.of(self._kind)
        self._controller = manager.controller(self.name, self._kind, self.reconcile, concurrency=CONCURRENCY)
        self._pace = WriteRate(manager.settling(STATUS_SECONDS), lambda: self._controller.backlog)
        self._controller.watch(world.machines, self._of_machine, "machine", facts=_machine_facts)
        self._controller.watch(world.clusters, self._of_cluster, "cluster", facts=_cluster_facts)
        self._controller.watch(world.jobs, self._of_job, "job")
        self._controller.watch(world.bootstraps, self._of_bootstrap, "bootstrap", facts=_bootstrap_facts)
        self._controller.watch(world.pools.failures, self._of_failures, "failures")

    # ---- who wakes a machine -----------------------------------------------------------------------------------------

    def _of_machine(self, machine: Machine) -> Iterable[Key]:
        ref = machine.spec.infrastructure_ref
        if ref.kind == self._kind.name and ref.api_group == self._kind.group:
            yield Key(machine.metadata.namespace, ref.name)

    def _of_cluster(self, cluster: Cluster) -> Iterable[Key]:
        for machine in members(self._world.manager.caches, MACHINE, cluster.key):
            yield from self._of_machine(machine)

    def _of_job(self, job: Job) -> Iterable[Key]:
        machine = manifests.subject(job.metadata, self._kind)
        if machine is None:
            return
        yield machine
        for waiting in self._world.pools.waiting_for(job):
            yield from self._of_machine(waiting)

    def _of_bootstrap(self, bootstrap: RKEBootstrap) -> Iterable[Key]:
        owner = bootstrap.metadata.owner("Machine", capi_names.GROUP)
        machine = self._world.machines.get(bootstrap.metadata.namespace, owner.name) if owner is not None else None
        return () if machine is None else self._of_machine(machine)

    def _of_failures(self, failures: ConfigMap) -> Iterable[Key]:
        for machine in self._world.pools.waiting(failures):
            yield from self._of_machine(machine)

    # ---- one run -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Outcome:
        value = self._informer.raw(*key)
        if value is None:
            self._pace.forget(key)
            return DONE
        scope = InfraMachineScope(self._world, self.driver, value)
        hold = paused(scope.cluster, scope.machine.metadata)
        if hold.status == TRUE:
            conditions.put(scope.draft.status, [hold], generation=0)
            await scope.save(PUBLISH)
            return Blocked("Paused", str(scope), hold.message)
        if _finished(scope):
            await scope.protect()
            return DONE
        outcome = await self._advance(scope)
        if FINALIZER not in scope.machine.metadata.finalizers and scope.machine.metadata.deleting:
            self._pace.forget(key)
            return outcome
        status.not_paused(scope.draft.status)
        urgent = scope.machine.metadata.deleting or matters(scope.draft, (READY, CREATE_JOB, DELETE_JOB, STALLED))
        held = await self._pace.save(
            self._world.client, scope.draft, scope.machine.metadata, PUBLISH, matters=urgent or _news(scope)
        )
        return soonest(outcome, held)

    async def _advance(self, scope: InfraMachineScope) -> Outcome:
        if scope.machine.metadata.deleting:
            return await removal.advance(scope)
        return await creation.advance(scope)


def _finished(scope: InfraMachineScope) -> bool:
    """Return whether a machine needs no further work, so that idle machines cost nothing."""
    machine = scope.machine
    if machine.metadata.deleting or not machine.status.initialization.provisioned:
        return False
    return scope.job is None and conditions.is_false(machine.status.conditions, "Paused")


def _news(scope: InfraMachineScope) -> bool:
    """Return whether the machine has stalled: that is written at once."""
    return STALLED in {one["type"] for one in scope.draft.status.get("conditions", ())}


def _machine_facts(machine: Machine) -> object:
    metadata, spec = machine.metadata, machine.spec
    return spec.bootstrap, spec.cluster_name, metadata.deleting, metadata.uid, metadata.labels


def _cluster_facts(cluster: Cluster) -> object:
    return cluster.spec.paused, cluster.status.initialization.infrastructure_provisioned, cluster.metadata.uid


def _bootstrap_facts(bootstrap: RKEBootstrap) -> object:
    return conditions.is_true(bootstrap.status.conditions, AGENT_CONNECTED)
