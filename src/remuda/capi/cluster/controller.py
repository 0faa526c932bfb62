"""The Cluster controller: reads all objects of a Cluster, provisions or deletes them, and writes one status.

It also decides which workload clusters the manager connects to: those with provisioned infrastructure, until their
Cluster is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.capi import health, names
from remuda.capi.cluster import deletion, handoff, status
from remuda.capi.cluster.kubeconfig import ensure_kubeconfig
from remuda.capi.cluster.scope import ClusterMembers, ClusterScope, ProviderLookup, look
from remuda.capi.cluster_index import cluster_of, index_by_cluster, machine_facts, members
from remuda.capi.contract import ContractError
from remuda.capi.external import Externals, UnknownKind
from remuda.capi.pause import is_paused, paused
from remuda.capi.remote import cluster_secrets
from remuda.capi.types import (
    CLUSTER,
    MACHINE,
    MACHINE_DEPLOYMENT,
    MACHINE_SET,
    Cluster,
    Machine,
    MachineDeployment,
    MachineSet,
    Reference,
)
from remuda.capi.write_rate import STATUS_SECONDS, WriteRate, matters
from remuda.kube import clock, conditions
from remuda.kube.errors import StatusError, ignore_not_found
from remuda.kube.objects import Key, Kind, Object
from remuda.runtime.controller import SETTLE_SECONDS
from remuda.runtime.draft import save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue, Retryable, soonest
from remuda.runtime.remote import RemoteClusters
from remuda.runtime.steps import step

PUBLISH = step("cluster.publish", "writes the Cluster's finalizer, endpoint and status")
DELETE_MEMBER = step(
    "cluster.delete-member", "deletes a worker or control plane object of a Cluster that is being deleted"
)
DELETE_CONTROL_PLANE = step(
    "cluster.delete-control-plane", "deletes the control plane object of a Cluster that is being deleted"
)
DELETE_INFRASTRUCTURE = step(
    "cluster.delete-infrastructure", "deletes the infrastructure object of a Cluster that is being deleted"
)

# Changes of these conditions are written at once. Those that sum up Machines may be written a little later.
_URGENT_CONDITIONS = (
    "Available",
    "InfrastructureReady",
    "ControlPlaneAvailable",
    "ControlPlaneInitialized",
    "WorkersAvailable",
    "RemoteConnectionProbe",
    "Deleting",
    "Paused",
)


class ClusterController:
    def __init__(
        self, manager: Manager, externals: Externals, remote: RemoteClusters, *, concurrency: int = 10
    ) -> None:
        self._client = manager.client
        self._caches = manager.caches
        self._events = manager.events
        self._externals = externals
        self._remote = remote
        self._clusters = manager.caches.of(CLUSTER)
        self._pace = WriteRate(manager.settling(STATUS_SECONDS), lambda: self._controller.backlog)
        self._secrets = cluster_secrets(manager.caches)
        self._controller = manager.controller("cluster", CLUSTER, self.reconcile, concurrency=concurrency)
        self._follow()

    def _follow(self) -> None:
        machines, watch = self._caches.of(MACHINE), self._controller.watch
        kinds: tuple[Kind[Any], ...] = (MACHINE_DEPLOYMENT, MACHINE_SET, MACHINE)
        for kind in kinds:
            index_by_cluster(self._caches, kind)
        watch(self._caches.of(MACHINE_DEPLOYMENT), _cluster_of, settle=SETTLE_SECONDS)
        watch(self._caches.of(MACHINE_SET), _cluster_of, settle=STATUS_SECONDS)
        watch(machines, _cluster_of, settle=STATUS_SECONDS, facts=machine_facts)
        watch(machines, _cluster_of_ill, "illness", facts=health.health_problem)
        self._externals.follow(self._controller, CLUSTER, _references)
        self._controller.watch(self._secrets, self._cluster_of_secret)
        self._remote.on_change(lambda cluster, node: self._controller.enqueue(cluster) if node is None else None)
        self._remote.on_probe(self._controller.enqueue)

    def _cluster_of_secret(self, secret: Object) -> Iterable[Key]:
        cluster = Key(secret.metadata.namespace, secret.metadata.labels.get(names.CLUSTER_NAME, ""))
        if secret.metadata.name == names.kubeconfig_secret(cluster.name):
            # The kubeconfig may have new credentials: reconnect now, instead of when several probes with the old ones
            # have failed.
            self._remote.nudge(cluster)
        return (cluster,)

    async def reconcile(self, key: Key) -> Outcome:
        value = self._clusters.raw(*key)
        if value is None:
            self._remote.forget(key)
            self._pace.forget(key)
            return DONE
        scope = await self._load(value)
        if is_paused(scope.cluster, scope.cluster.metadata):
            return await self._pause(scope)
        if scope.cluster.metadata.deleting:
            return await self._delete(scope)
        return await self._provision(scope)

    async def _load(self, value: bytes) -> ClusterScope:
        cluster = CLUSTER.decode(value)
        key = cluster.key
        return ClusterScope(
            value,
            await look(self._externals, cluster.spec.infrastructure_ref, key.namespace),
            await look(self._externals, cluster.spec.control_plane_ref, key.namespace),
            ClusterMembers(
                members(self._caches, MACHINE_DEPLOYMENT, key),
                members(self._caches, MACHINE_SET, key),
                members(self._caches, MACHINE, key),
            ),
            self._remote.look(key),
        )

    async def _pause(self, scope: ClusterScope) -> Outcome:
        conditions.put(
            scope.draft.status,
            [paused(scope.cluster, scope.cluster.metadata)],
            generation=scope.cluster.metadata.generation,
        )
        await save(self._client, scope.draft, PUBLISH)
        return DONE

    async def _provision(self, scope: ClusterScope) -> Outcome:
        """Run every phase, even if others fail. Write the status first, then raise the errors."""
        scope.draft.add_finalizer(names.CLUSTER_FINALIZER)
        outcomes: list[Outcome] = []
        errors: list[Exception] = []
        # The order matters: the kubeconfig needs the endpoint that the first two phases copy, and the connection needs
        # the flag that the first one sets.
        for phase in (self._take_infrastructure, self._take_control_plane, self._ensure_kubeconfig, self._connect):
            try:
                outcomes.append(await phase(scope))
            except Exception as error:
                errors.append(error)
        outcomes.append(await self._publish(scope, failed=bool(errors)))
        if errors:
            raise _together(errors)
        return soonest(*outcomes)

    async def _take_infrastructure(self, scope: ClusterScope) -> Outcome:
        try:
            return await handoff.take_infrastructure(self._client, scope)
        except ContractError as error:
            scope.infrastructure = scope.infrastructure._replace(error=error)
            raise

    async def _take_control_plane(self, scope: ClusterScope) -> Outcome:
        try:
            return await handoff.take_control_plane(self._client, scope)
        except ContractError as error:
            scope.control_plane = scope.control_plane._replace(error=error)
            raise

    async def _ensure_kubeconfig(self, scope: ClusterScope) -> Outcome:
        return await ensure_kubeconfig(self._client, self._secrets, scope)

    async def _connect(self, scope: ClusterScope) -> Outcome:
        if scope.provisioned:
            self._remote.want(scope.key)
            scope.connection = self._remote.look(scope.key)
        return DONE

    async def _delete(self, scope: ClusterScope) -> Outcome:
        scope.control_plane = await self._fetch_if_not_cached(scope.control_plane, scope.key.namespace)
        scope.infrastructure = await self._fetch_if_not_cached(scope.infrastructure, scope.key.namespace)
        stage = deletion.plan(scope.members, scope.control_plane, scope.infrastructure)
        try:
            await self._delete_objects(stage, scope)
        except StatusError as error:
            stage = stage._replace(reason="InternalError", message=str(error), error=error)
        if stage.completed:
            scope.draft.remove_finalizer(names.CLUSTER_FINALIZER)
        again = await self._publish(scope, stage, failed=stage.error is not None)
        if stage.error is not None:
            raise stage.error
        if stage.completed:
            self._events.normal(scope.cluster, "Deleted", f"Cluster {scope.key.name} has been deleted")
        return DONE if stage.completed else soonest(Blocked(stage.reason, stage.on, stage.message), again)

    async def _fetch_if_not_cached(self, found: ProviderLookup, namespace: str) -> ProviderLookup:
        """Fetch an object that the cache lacks from the server, because the cache may lag behind. An object whose kind
        does not exist does not exist either."""
        if found.ref is None or found.obj is not None:
            return found
        if found.error is not None and not isinstance(found.error, UnknownKind):
            return found
        return ProviderLookup(found.ref, await self._externals.fetch(found.ref, namespace))

    async def _delete_objects(self, stage: deletion.ClusterDeletionStage, scope: ClusterScope) -> None:
        for kind, obj in stage.delete:
            async with DELETE_MEMBER:
                with ignore_not_found():
                    # The uid protects an object that was recreated under this name after the cache was read.
                    await self._client.delete(kind.target, *obj.key, uid=obj.metadata.uid)
        provider = stage.delete_provider
        if provider is not None and not provider.deleting:
            control_plane = provider is scope.control_plane.obj
            async with DELETE_CONTROL_PLANE if control_plane else DELETE_INFRASTRUCTURE:
                await self._externals.delete(provider)

    async def _publish(
        self, scope: ClusterScope, stage: deletion.ClusterDeletionStage | None = None, *, failed: bool
    ) -> Outcome:
        report = status.derive(_observed(scope, stage))
        generation = _next_generation(scope)
        report.write(scope.draft.status)
        # After a failure, clients that wait for this generation must not take it for reconciled.
        if not failed:
            scope.draft.status["observedGeneration"] = generation
        conditions.put(
            scope.draft.status,
            [*report.conditions, paused(scope.cluster, scope.cluster.metadata)],
            generation=generation,
        )
        urgent = failed or stage is not None or matters(scope.draft, _URGENT_CONDITIONS)
        rest = await self._pace.save(self._client, scope.draft, scope.cluster.metadata, PUBLISH, matters=urgent)
        later = "a grace period ends: of a new Machine, or of an API server that does not answer"
        timer = DONE if report.look_again is None else Requeue(report.look_again, later)
        return soonest(timer, rest)


def _cluster_of(member: Machine | MachineSet | MachineDeployment) -> Iterable[Key]:
    return (cluster_of(member),)


def _cluster_of_ill(machine: Machine) -> Iterable[Key]:
    """Return the Cluster of a Machine that fell ill or recovered: this change is written at once, unlike others."""
    return (cluster_of(machine),) if health.health_problem(machine) else ()


def _references(cluster: Cluster) -> Iterable[Reference | None]:
    return cluster.spec.infrastructure_ref, cluster.spec.control_plane_ref


def _observed(scope: ClusterScope, stage: deletion.ClusterDeletionStage | None) -> status.ObservedCluster:
    return status.ObservedCluster(
        cluster=scope.cluster,
        now=clock.time(),
        provisioned=scope.provisioned,
        initialized=scope.initialized,
        endpoint_known=scope.endpoint_known,
        infrastructure=scope.infrastructure,
        control_plane=scope.control_plane,
        members=scope.members,
        connection=scope.connection,
        stage=stage,
    )


def _next_generation(scope: ClusterScope) -> int:
    """Return the generation after the draft is saved: a changed spec raises it by one, which saves a second status
    write.
    """
    changed = scope.draft.obj.get("spec") != scope.draft.base.get("spec")
    return scope.cluster.metadata.generation + changed


def _together(errors: list[Exception]) -> Exception:
    """Combine several errors into one: join the messages of Retryable errors; group any others, so that the log shows
    where each was raised."""
    if len(errors) == 1:
        return errors[0]
    if all(isinstance(error, Retryable) for error in errors):
        return Retryable("; ".join(map(str, errors)))
    return ExceptionGroup("several phases of the reconcile failed", errors)
