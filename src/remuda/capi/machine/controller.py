"""The Machine controller: connects a Machine with its bootstrap data, its server and its Node, and deletes them.

Every reconcile reads all of these objects: the state of a Machine follows from them, not from its history. Phases run
in a fixed order. A phase that fails does not stop the others, and the status reports the failure. The controller writes
the Machine once, at the end, and only if something changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from remuda.capi import names
from remuda.capi.cluster_index import cluster_of
from remuda.capi.contract import (
    ContractError,
    ProviderObject,
    condition,
    data_secret_created_path,
    provisioned_path,
)
from remuda.capi.external import Externals, UnknownKind
from remuda.capi.machine import handoff, node_link, removal
from remuda.capi.machine.deletion import MachineDeletionStage
from remuda.capi.machine.node_health import GRACE_SECONDS, NodeView, connection_lost_at
from remuda.capi.machine.ownership import adopt
from remuda.capi.machine.scope import MachineDependencies, MachineOptions, MachineScope
from remuda.capi.machine.status import MachineReport, ObservedMachine, ProviderState, publish
from remuda.capi.machine.wakeups import listen
from remuda.capi.pause import paused
from remuda.capi.revisions import differences
from remuda.capi.types import (
    CLUSTER,
    MACHINE,
    MACHINE_DEPLOYMENT,
    MACHINE_DRAIN_RULE,
    MACHINE_SET,
    Cluster,
    Reference,
)
from remuda.capi.write_rate import WriteRate
from remuda.kube import clock
from remuda.kube.conditions import TRUE, find, put
from remuda.kube.errors import AlreadyExists, Conflict, StatusError
from remuda.kube.objects import Condition, Key
from remuda.runtime.draft import Draft
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue, Retryable, soonest
from remuda.runtime.remote import RemoteClusters
from remuda.runtime.steps import step

PUBLISH = step("machine.publish", "writes the Machine's finalizer, owner, provider ID and status")
LET_GO = step("machine.let-go", "removes the finalizer of a Machine whose deletion is complete")

CONCURRENCY = 100
_EXPECTED = (Retryable, StatusError, OSError, TimeoutError)

Phase = Callable[[MachineDependencies, MachineScope], Awaitable[None]]


def add(
    manager: Manager, externals: Externals, remote: RemoteClusters, options: MachineOptions | None = None
) -> MachineController:
    """Add the Machine controller to a manager that has not started yet."""
    return MachineController(manager, externals, remote, options or MachineOptions())


class MachineController:
    def __init__(self, manager: Manager, externals: Externals, remote: RemoteClusters, options: MachineOptions) -> None:
        caches = manager.caches
        self._ledger = manager.ledger
        self._pace = WriteRate(options.status_seconds, lambda: self._controller.backlog)
        self._world = MachineDependencies(
            client=manager.client,
            caches=caches,
            externals=externals,
            remote=remote,
            events=manager.events,
            machines=caches.of(MACHINE),
            clusters=caches.of(CLUSTER),
            sets=caches.of(MACHINE_SET),
            deployments=caches.of(MACHINE_DEPLOYMENT),
            rules=caches.of(MACHINE_DRAIN_RULE),
            options=options,
        )
        self._controller = manager.controller("machine", MACHINE, self.reconcile, concurrency=CONCURRENCY)
        listen(self._world, self._controller)

    async def reconcile(self, key: Key) -> Outcome:
        value = self._world.machines.raw(*key)
        if value is None:
            self._world.node_deletions.pop(key, None)
            self._pace.forget(key)
            return DONE
        scope = self._load(value)
        hold = paused(scope.cluster, scope.machine.metadata)
        if hold.status == TRUE:
            put(scope.draft.status, [hold], generation=scope.generation)
            await self._save(scope, matters=True)
            return Blocked("Paused", f"Machine {key}", hold.message)
        for name, phase in self._phases(scope):
            await self._run(name, phase, scope)
        put(scope.draft.status, [hold], generation=scope.generation)
        verdict = self._publish(scope)
        rest = await self._save(scope, matters=_matters(scope, verdict))
        return self._outcome(scope, verdict, rest)

    def _load(self, value: bytes) -> MachineScope:
        world = self._world
        draft = Draft(MACHINE.target, value)
        machine = MACHINE.decode(value)
        namespace = machine.metadata.namespace
        cluster = world.clusters.get(namespace, machine.spec.cluster_name)
        owner = machine.metadata.owner(MACHINE_SET.name, MACHINE_SET.group)
        machine_set = world.sets.get(namespace, owner.name) if owner is not None else None
        above = machine_set.metadata.owner(MACHINE_DEPLOYMENT.name, MACHINE_DEPLOYMENT.group) if machine_set else None
        return MachineScope(
            draft=draft,
            machine=machine,
            cluster=cluster or Cluster(),
            connection=world.remote.look(cluster_of(machine)),
            now=clock.time(),
            machine_set=machine_set,
            deployment=world.deployments.get(namespace, above.name) if above is not None else None,
        )

    def _phases(self, scope: MachineScope) -> list[tuple[str, Phase]]:
        handoffs: list[tuple[str, Phase]] = [
            ("bootstrap", handoff.bootstrap),
            ("infrastructure", handoff.infrastructure),
            ("node", node_link.link),
            ("certificates", handoff.certificates),
        ]
        if scope.machine.metadata.deleting:
            # Handoffs run during a deletion too: its stages need the provider objects and the Node that they look up.
            return [*handoffs, ("deletion", removal.remove)]
        if not scope.cluster.metadata.name:
            return [("cluster", _await_cluster), *handoffs]
        return [("owner", _own), *handoffs]

    async def _run(self, name: str, phase: Phase, scope: MachineScope) -> None:
        try:
            await phase(self._world, scope)
        except UnknownKind as error:
            # If the kind was deleted, so were its objects: nothing is left to delete.
            if not scope.machine.metadata.deleting:
                scope.failures[name] = error
        except _EXPECTED as error:
            scope.failures[name] = error

    def _publish(self, scope: MachineScope) -> MachineReport:
        machine, failures = scope.current, scope.failures
        outdated = None
        if scope.machine_set is not None and scope.deployment is not None:
            outdated = differences(scope.machine_set, scope.deployment, scope.now)
        bootstrap_ref, server_ref = machine.spec.bootstrap.config_ref or Reference(), machine.spec.infrastructure_ref
        verdict = publish(
            scope.draft.status,
            ObservedMachine(
                machine=machine,
                cluster=scope.cluster,
                bootstrap=_seen(bootstrap_ref, scope.bootstrap, failures.get("bootstrap"), data_secret_created_path),
                infrastructure=_seen(
                    server_ref, scope.infrastructure, failures.get("infrastructure"), provisioned_path
                ),
                node=NodeView(scope.link, scope.node, _error_text(failures.get("node")), scope.unclaimed),
                now=scope.now,
                deleting=scope.deleting,
                outdated=outdated,
                failed=bool(failures),
                generation=scope.generation,
            ),
        )
        self._ledger.phase(machine.key, verdict.phase)
        return verdict

    async def _save(self, scope: MachineScope, *, matters: bool) -> Outcome:
        step = LET_GO if scope.deleting.stage is MachineDeletionStage.COMPLETED else PUBLISH
        metadata = scope.machine.metadata
        return await self._pace.save(self._world.client, scope.draft, metadata, step, matters=matters)

    def _outcome(self, scope: MachineScope, verdict: MachineReport, rest: Outcome) -> Outcome:
        # The first error is enough to requeue the Machine with back-off: the conditions have reported all of them.
        for error in scope.failures.values():
            raise error
        looks = [verdict.look_again_at, _connection_verdict_at(scope), _rollout_at(scope)]
        timers = [Requeue(max(0.0, at - scope.now)) for at in looks if at is not None and at > scope.now]
        return soonest(*scope.waits, *timers, rest)


# ---- phases too small for a file ---------------------------------------------------------------------------------


async def _own(world: MachineDependencies, scope: MachineScope) -> None:
    scope.draft.add_finalizer(names.MACHINE_FINALIZER)
    adopt(scope)


async def _await_cluster(world: MachineDependencies, scope: MachineScope) -> None:
    place = f"Cluster {scope.cluster_key}"
    scope.block("WaitingForCluster", place, f"{place} does not exist")


# ---- observation -------------------------------------------------------------------------------------------------


def _matters(scope: MachineScope, verdict: MachineReport) -> bool:
    """Return whether others wait for this status: a step failed, the Machine is being deleted, or Ready or Available
    changed."""
    if scope.failures or scope.machine.metadata.deleting:
        return True
    before = scope.machine.status.conditions
    return any(_status(before, type) != _status(verdict.conditions, type) for type in ("Ready", "Available"))


def _status(conditions: Iterable[Condition], type: str) -> bool:
    found = find(conditions, type)
    return found is not None and found.status == TRUE


def _seen(
    ref: Reference,
    found: ProviderObject | None,
    error: Exception | None,
    flag: Callable[[ProviderObject], Sequence[str]],
) -> ProviderState:
    if found is None:
        return ProviderState(ref.kind, error=_error_text(error))
    seen = ProviderState(ref.kind, present=True, error=_error_text(error), flag=".".join(flag(found)))
    try:
        return seen._replace(ready=condition(found, "Ready"))
    except ContractError as broken:
        return seen._replace(malformed=str(broken))


def _error_text(error: Exception | None) -> str:
    """Return the message of an error for a condition; empty for a conflict, which the next reconcile resolves."""
    if error is None or isinstance(error, AlreadyExists | Conflict):
        return ""
    return str(error) or type(error).__name__


def _connection_verdict_at(scope: MachineScope) -> float | None:
    """Return the time at which a connection that stays lost exceeds the grace period."""
    if scope.connection.connected or not scope.cluster.status.initialization.control_plane_initialized:
        return None
    lost = connection_lost_at(scope.cluster, scope.link)
    return None if lost is None else lost + GRACE_SECONDS + 1


def _rollout_at(scope: MachineScope) -> float | None:
    after = scope.deployment.spec.rollout.after if scope.deployment is not None else None
    return clock.parse(after) if after else None
