"""The MachineSet controller: adopts, replaces, updates, creates and deletes Machines until their number is right.

Phases run in a fixed order on the content of the caches, which includes the controller's own writes. The first phase
that fails ends the reconcile; the status is still written, and reports the reason.
"""

from __future__ import annotations

from collections.abc import Iterable

from remuda.capi import conditions, names, templates
from remuda.capi.cluster_index import cluster_of, index_by_cluster, machine_facts
from remuda.capi.external import Externals
from remuda.capi.machineset import creation, inheritance, members, replicas, status
from remuda.capi.machineset.scope import MachineSetScope
from remuda.capi.pause import paused
from remuda.capi.pools import BY_CONTROLLER, CONCURRENCY, EXPECTED, PoolDependencies
from remuda.capi.templates import Templates
from remuda.capi.types import (
    MACHINE_DEPLOYMENT,
    MACHINE_SET,
    Cluster,
    Machine,
    MachineDeployment,
    MachineSet,
    Reference,
)
from remuda.capi.write_rate import STATUS_SECONDS, WriteRate, matters
from remuda.kube import clock
from remuda.kube.conditions import TRUE, put
from remuda.kube.errors import Conflict
from remuda.kube.objects import Key
from remuda.runtime.controller import SETTLE_SECONDS
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue, soonest
from remuda.runtime.steps import step

PREPARE = step(
    "machineset.prepare", "writes the MachineSet's finalizer, owner and label before the first Machine is created"
)
PUBLISH = step("machineset.publish", "writes the MachineSet's status, or removes its finalizer")

_BY_CLUSTER = "cluster"


def add(manager: Manager, externals: Externals) -> MachineSetController:
    """The MachineSet controller, added to a manager that has not started yet."""
    return MachineSetController(manager, externals)


class MachineSetController:
    def __init__(self, manager: Manager, externals: Externals) -> None:
        self._world = PoolDependencies.of(manager, externals)
        self._pace = WriteRate(manager.settling(STATUS_SECONDS), lambda: self._controller.backlog)
        self._controller = manager.controller("machineset", MACHINE_SET, self.reconcile, concurrency=CONCURRENCY)
        index_by_cluster(manager.caches, MACHINE_SET)
        self._listen()

    # ---- who wakes a MachineSet ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        world = self._world
        self._controller.watch(world.machines, self._sets_of_machine, settle=SETTLE_SECONDS, facts=machine_facts)
        self._controller.watch(world.clusters, self._sets_of_cluster, facts=_cluster_facts)
        self._controller.watch(world.deployments, self._sets_of_deployment, facts=_deployment_facts)
        world.externals.follow(self._controller, MACHINE_SET, _references)

    def _sets_of_machine(self, machine: Machine) -> Iterable[Key]:
        owner = machine.metadata.controller
        if owner is None:
            return self._world.sets.keys(_BY_CLUSTER, str(cluster_of(machine)))
        is_set = owner.kind == MACHINE_SET.name and owner.group == MACHINE_SET.group
        return (Key(machine.metadata.namespace, owner.name),) if is_set else ()

    def _sets_of_cluster(self, cluster: Cluster) -> Iterable[Key]:
        return self._world.sets.keys(_BY_CLUSTER, str(cluster.key))

    def _sets_of_deployment(self, deployment: MachineDeployment) -> Iterable[Key]:
        return self._world.sets.keys(BY_CONTROLLER, deployment.metadata.uid)

    # ---- one run -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Outcome:
        value = self._world.sets.raw(*key)
        if value is None:
            self._pace.forget(key)
            self._world.propagated.pop(key, None)
            return DONE
        scope = self._load(value)
        hold = paused(scope.cluster, scope.machine_set.metadata)
        if hold.status == TRUE:
            put(scope.draft.status, [hold], generation=scope.machine_set.metadata.generation)
            await self._save(scope)
            return soonest(*scope.waits, Blocked("Paused", f"MachineSet {key}", hold.message))
        if not scope.machine_set.metadata.deleting:
            scope = await self._prepare(scope)
        try:
            await self._act(scope)
        except Conflict:
            raise  # another writer was faster: the next run decides anew, and no condition reports it
        except EXPECTED as error:
            scope.failures.append(error)
        await self._publish(scope)
        return self._outcome(scope)

    def _load(self, value: bytes) -> MachineSetScope:
        world = self._world
        machine_set = MACHINE_SET.decode(value)
        namespace = machine_set.metadata.namespace
        owner = machine_set.metadata.controller
        is_deployed = owner is not None and owner.kind == MACHINE_DEPLOYMENT.name
        return MachineSetScope(
            draft=Draft(MACHINE_SET.target, value),
            machine_set=machine_set,
            cluster=world.clusters.get(namespace, machine_set.spec.cluster_name),
            deployment=world.deployments.get(namespace, owner.name) if owner is not None and is_deployed else None,
            machines=members.of(world, machine_set),
        )

    async def _prepare(self, scope: MachineSetScope) -> MachineSetScope:
        """Write the metadata needed before the first Machine is created; sets of a MachineDeployment have it
        already."""
        draft = Draft(scope.draft.target, scope.draft.value)
        # Before the first Machine exists: a set deleted without its finalizer would be gone before its Machines.
        draft.add_finalizer(names.MACHINE_SET_FINALIZER)
        draft.set_label(names.CLUSTER_NAME, names.label_value(scope.machine_set.spec.cluster_name))
        if scope.machine_set.metadata.controller is None and scope.cluster is not None:
            draft.set_owner(templates.cluster_owner(scope.cluster))
        value = await save(self._world.client, draft, PREPARE)
        return scope if value is draft.value else self._load(value)

    async def _act(self, scope: MachineSetScope) -> None:
        if scope.machine_set.metadata.deleting:
            await replicas.remove_all(self._world, scope)
        elif scope.cluster is None:
            place = f"Cluster {cluster_of(scope.machine_set)}"
            scope.obstacles.append(f"{place} does not exist")
            scope.waits.append(Blocked("WaitingForCluster", place, f"{place} does not exist"))
        else:
            await self._maintain(scope, scope.cluster)

    async def _maintain(self, scope: MachineSetScope, cluster: Cluster) -> None:
        world = self._world
        found = await replicas.find_templates(world, scope)
        if found is not None and scope.machine_set.metadata.controller is None:
            await templates.give_to_cluster(world.client, cluster, (found.bootstrap, found.infrastructure))
        # Adopt before counting: a matching Machine that has lost its controller must not be created a second time.
        await members.adopt(world, scope)
        if self._makes_machines(scope):
            await replicas.check(world, scope, found)
        if replicas.needs_remediation(scope):
            await replicas.remediate(world, scope)
            # The cache includes the deletions just requested.
            self._refresh(scope)
        # First give Machines that a crash left without provider objects what they lack, then create others.
        await self._complete(scope, found)
        await inheritance.propagate(world, scope, found)
        self._refresh(scope)
        await replicas.resize(world, scope, found)

    def _makes_machines(self, scope: MachineSetScope) -> bool:
        return len(scope.machines) < (scope.machine_set.spec.replicas or 0) or replicas.needs_remediation(scope)

    async def _complete(self, scope: MachineSetScope, found: Templates | None) -> None:
        for machine in scope.machines:
            if found is not None and creation.is_incomplete(machine):
                await creation.complete(self._world, scope, found, machine)

    def _refresh(self, scope: MachineSetScope) -> None:
        scope.machines = members.of(self._world, scope.machine_set)

    async def _publish(self, scope: MachineSetScope) -> None:
        self._refresh(scope)
        seen = status.ObservedMachineSet(
            machine_set=scope.machine_set,
            machines=scope.machines,
            now=clock.time(),
            obstacles=scope.obstacles,
            failed_checks=scope.failed_checks,
        )
        hold = paused(scope.cluster, scope.machine_set.metadata)
        put(scope.draft.status, [hold], generation=scope.machine_set.metadata.generation)
        status.publish(scope.draft.status, seen)
        if scope.machine_set.metadata.deleting and not scope.machines:
            scope.draft.remove_finalizer(names.MACHINE_SET_FINALIZER)
        await self._save(scope)

    async def _save(self, scope: MachineSetScope) -> None:
        metadata = scope.machine_set.metadata
        urgent = bool(scope.failures) or metadata.deleting or _matters(scope)
        scope.waits.append(await self._pace.save(self._world.client, scope.draft, metadata, PUBLISH, matters=urgent))

    def _outcome(self, scope: MachineSetScope) -> Outcome:
        for error in scope.failures:
            raise error
        now = clock.time()
        at = conditions.becomes_late_at(scope.machines, now)
        timers = [] if at is None else [Requeue(at - now)]
        return soonest(*scope.waits, *timers)


def _matters(scope: MachineSetScope) -> bool:
    """Return whether the status must be written at once: a MachineDeployment continues when the counts change."""
    before, after = scope.draft.base.get("status", {}), scope.draft.status
    counted = ("replicas", "readyReplicas", "availableReplicas", "upToDateReplicas")
    changed = any((before.get(name) or 0) != (after.get(name) or 0) for name in counted)
    return changed or matters(scope.draft, ("Deleting", "Paused"))


def _references(machine_set: MachineSet) -> Iterable[Reference | None]:
    return templates.references(machine_set.spec.template)


def _cluster_facts(cluster: Cluster) -> object:
    """The control plane's counters are in it because they move when its version does, which preflight checks read."""
    metadata, found = cluster.metadata, cluster.status
    return (
        cluster.spec,
        metadata.deleting,
        metadata.annotations,
        metadata.uid,
        found.initialization,
        found.control_plane,
    )


def _deployment_facts(deployment: MachineDeployment) -> object:
    metadata, spec = deployment.metadata, deployment.spec
    return spec.remediation, spec.replicas, metadata.annotations.get(names.REVISION), metadata.uid
