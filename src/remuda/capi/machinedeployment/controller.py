"""The MachineDeployment controller: one MachineSet per revision of the template, and rollouts between revisions.

It never changes a Machine: it only sets the size of each of its MachineSets (`progress`, planned by `rollout`), and
derives its status from theirs.
"""

from __future__ import annotations

from collections.abc import Iterable

from remuda.capi import names, revisions, templates
from remuda.capi.cluster_index import cluster_of, index_by_cluster
from remuda.capi.conditions import becomes_late_at
from remuda.capi.external import Externals, UnknownKind, UnlabelledKind
from remuda.capi.machinedeployment import progress, rollout, status
from remuda.capi.machinedeployment.rollout import RolloutLimits
from remuda.capi.machinedeployment.scope import MachineDeploymentScope
from remuda.capi.pause import paused
from remuda.capi.pools import BY_CONTROLLER, CONCURRENCY, EXPECTED, PoolDependencies
from remuda.capi.revisions import Sets
from remuda.capi.templates import MissingTemplate
from remuda.capi.types import (
    MACHINE_DEPLOYMENT,
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

PREPARE = step("machinedeployment.prepare", "writes the MachineDeployment's finalizer, owner, label and revision")
PUBLISH = step("machinedeployment.publish", "writes the MachineDeployment's status, or removes its finalizer")

_BY_CLUSTER = "cluster"
_ANSWER_SECONDS = 1.0  # time in which MachineSets usually report on a new size


def add(manager: Manager, externals: Externals) -> MachineDeploymentController:
    """Add the MachineDeployment controller to a manager that has not started yet."""
    return MachineDeploymentController(manager, externals)


class MachineDeploymentController:
    def __init__(self, manager: Manager, externals: Externals) -> None:
        self._world = PoolDependencies.of(manager, externals)
        self._pace = WriteRate(manager.settling(STATUS_SECONDS), lambda: self._controller.backlog)
        self._controller = manager.controller(
            "machinedeployment", MACHINE_DEPLOYMENT, self.reconcile, concurrency=CONCURRENCY
        )
        index_by_cluster(manager.caches, MACHINE_DEPLOYMENT)
        self._listen()

    # ---- watches -------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Watch MachineSets and Clusters. Machines are not watched: their sets report every change of them."""
        world = self._world
        self._controller.watch(world.sets, self._deployments_of_set, settle=SETTLE_SECONDS)
        self._controller.watch(world.clusters, self._deployments_of_cluster, facts=_cluster_facts)
        world.externals.follow(self._controller, MACHINE_DEPLOYMENT, _references)

    def _deployments_of_set(self, machine_set: MachineSet) -> Iterable[Key]:
        owner = machine_set.metadata.controller
        if owner is None:
            return self._world.deployments.keys(_BY_CLUSTER, str(cluster_of(machine_set)))
        return (Key(machine_set.metadata.namespace, owner.name),) if owner.kind == MACHINE_DEPLOYMENT.name else ()

    def _deployments_of_cluster(self, cluster: Cluster) -> Iterable[Key]:
        return self._world.deployments.keys(_BY_CLUSTER, str(cluster.key))

    # ---- reconcile -----------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Outcome:
        value = self._world.deployments.raw(*key)
        if value is None:
            self._pace.forget(key)
            return DONE
        scope = self._load(value)
        hold = paused(scope.cluster, scope.deployment.metadata)
        if hold.status == TRUE:
            put(scope.draft.status, [hold], generation=scope.deployment.metadata.generation)
            await self._save(scope)
            return soonest(*scope.waits, Blocked("Paused", f"MachineDeployment {key}", hold.message))
        limits = _limits(scope)
        try:
            await self._act(scope, limits)
        except Conflict:
            raise  # another writer was faster: the next run decides anew, and no condition reports it
        except EXPECTED as error:
            scope.failures.append(error)
            scope.obstacles.append(str(error))
        if scope.moved and not scope.failures:
            return Requeue(_ANSWER_SECONDS)  # the sets report soon: one status write then is enough
        await self._publish(scope, limits)
        return self._outcome(scope)

    def _load(self, value: bytes) -> MachineDeploymentScope:
        deployment = MACHINE_DEPLOYMENT.decode(value)
        scope = MachineDeploymentScope(
            draft=Draft(MACHINE_DEPLOYMENT.target, value),
            deployment=deployment,
            cluster=self._world.clusters.get(*cluster_of(deployment)),
            sets=Sets(None, ()),
            now=clock.time(),
        )
        self._refresh(scope)
        return scope

    def _refresh(self, scope: MachineDeploymentScope) -> None:
        scope.sets = revisions.sort(scope.deployment, progress.sets_of(self._world, scope.deployment), scope.now)

    async def _act(self, scope: MachineDeploymentScope, limits: RolloutLimits | None) -> None:
        if scope.deployment.metadata.deleting:
            await progress.remove_all(self._world, scope)
        elif scope.cluster is None:
            place = f"Cluster {cluster_of(scope.deployment)}"
            scope.obstacles.append(f"{place} does not exist")
            scope.waits.append(Blocked("WaitingForCluster", place, f"{place} does not exist"))
        elif limits is not None:
            await self._maintain(scope, scope.cluster, limits)

    async def _maintain(self, scope: MachineDeploymentScope, cluster: Cluster, limits: RolloutLimits) -> None:
        selector = progress.selector_of(scope.deployment)
        if selector is None:
            scope.obstacles.append("spec.selector does not match the labels of spec.template, or selects all Machines")
            return
        await self._own_templates(scope, cluster)
        if await progress.adopt(self._world, scope, selector):
            self._refresh(scope)
        number = await self._prepare(scope, cluster)
        plan = progress.plan(scope, limits)
        scope.waiting = plan.waiting
        scope.moved = await progress.carry_out(self._world, scope, plan, limits, number)
        if not scope.deployment.spec.paused:
            await progress.clear(self._world, scope, limits)
        if plan.waiting:
            on = f"MachineDeployment {scope.deployment.key}"
            scope.waits.append(Blocked("RollingOut", on, plan.waiting))

    async def _own_templates(self, scope: MachineDeploymentScope, cluster: Cluster) -> None:
        try:
            spec = scope.deployment.spec.template.spec
            found = await templates.find(self._world.externals, spec, scope.namespace)
        except (MissingTemplate, UnknownKind, UnlabelledKind) as error:
            scope.obstacles.append(str(error))
            return
        await templates.give_to_cluster(self._world.client, cluster, (found.bootstrap, found.infrastructure))

    async def _prepare(self, scope: MachineDeploymentScope, cluster: Cluster) -> int:
        """Write, in one request, the metadata needed before the first MachineSet is created; return the revision
        number."""
        number = _revision(scope)
        draft = Draft(scope.draft.target, scope.draft.value)
        draft.add_finalizer(names.MACHINE_DEPLOYMENT_FINALIZER)
        draft.set_label(names.CLUSTER_NAME, names.label_value(scope.deployment.spec.cluster_name))
        draft.set_owner(templates.cluster_owner(cluster))
        if number:
            draft.set_annotation(names.REVISION, str(number))
        value = await save(self._world.client, draft, PREPARE)
        if value is not draft.value:
            scope.draft, scope.deployment = Draft(draft.target, value), MACHINE_DEPLOYMENT.decode(value)
        return number

    async def _publish(self, scope: MachineDeploymentScope, limits: RolloutLimits | None) -> None:
        self._refresh(scope)
        machines = self._machines(scope)
        hold = paused(scope.cluster, scope.deployment.metadata)
        put(scope.draft.status, [hold], generation=scope.deployment.metadata.generation)
        status.publish(
            scope.draft.status,
            status.ObservedMachineDeployment(
                deployment=scope.deployment,
                new=scope.sets.new,
                sets=scope.all_sets,
                machines=machines,
                limits=limits,
                now=scope.now,
                obstacles=scope.obstacles,
                waiting=scope.waiting,
            ),
        )
        at = becomes_late_at(machines, scope.now)
        if at is not None:
            scope.waits.append(Requeue(at - scope.now))
        if scope.deployment.metadata.deleting and not scope.all_sets:
            scope.draft.remove_finalizer(names.MACHINE_DEPLOYMENT_FINALIZER)
        await self._save(scope)

    def _machines(self, scope: MachineDeploymentScope) -> list[Machine]:
        found = [self._world.machines.select(BY_CONTROLLER, one.metadata.uid) for one in scope.all_sets]
        return sorted((machine for some in found for machine in some), key=lambda machine: machine.metadata.name)

    async def _save(self, scope: MachineDeploymentScope) -> None:
        metadata = scope.deployment.metadata
        urgent = bool(scope.failures) or metadata.deleting or _matters(scope)
        scope.waits.append(await self._pace.save(self._world.client, scope.draft, metadata, PUBLISH, matters=urgent))

    def _outcome(self, scope: MachineDeploymentScope) -> Outcome:
        for error in scope.failures:
            raise error
        after = scope.deployment.spec.rollout.after
        wait = clock.parse(after) - scope.now if after else 0.0
        if wait > 0 and not scope.deployment.metadata.deleting:
            scope.waits.append(Requeue(wait, "spec.rollout.after is in the future"))
        return soonest(*scope.waits)


def _matters(scope: MachineDeploymentScope) -> bool:
    return matters(scope.draft, ("Available", "Deleting", "Paused"))


def _limits(scope: MachineDeploymentScope) -> RolloutLimits | None:
    """Return the limits of a rollout; None, so that nothing is done, without spec.replicas or with a bad strategy."""
    spec = scope.deployment.spec
    if spec.replicas is None:
        return None
    try:
        return rollout.limits(spec.replicas, spec.rollout.strategy)
    except ValueError as error:
        scope.obstacles.append(f"spec.rollout.strategy: {error}")
        return None


def _revision(scope: MachineDeploymentScope) -> int:
    """Return the number of the current revision; while its MachineSet cannot be created, the previous number."""
    blocked = scope.sets.new is None and (scope.obstacles or scope.deployment.spec.paused)
    return revisions.revision(scope.deployment.metadata.annotations) if blocked else revisions.next_revision(scope.sets)


def _references(deployment: MachineDeployment) -> Iterable[Reference | None]:
    return templates.references(deployment.spec.template)


def _cluster_facts(cluster: Cluster) -> object:
    metadata = cluster.metadata
    return cluster.spec.paused, metadata.annotations, metadata.uid
