"""RKECluster: what the servers of a cluster share, which is nothing, or what a driver makes for them.

Without `spec.infrastructure` it is provisioned as soon as a Cluster owns it. With it, once the driver has made what it
makes (`work`): before the first machine, because machines wait for that, and removed after the last. Where nothing
stands before the servers, its endpoint is the address of one of them, once the API answers (`endpoint`); an endpoint of
the user's is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable

from remuda.capi import names as capi_names
from remuda.capi.cluster_index import index_by_cluster
from remuda.capi.pause import paused
from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.jobs.types import Job
from remuda.kube import conditions
from remuda.kube.conditions import condition
from remuda.kube.objects import Key
from remuda.providers.infrastructure import endpoint, work
from remuda.providers.infrastructure.endpoint import BEFORE
from remuda.providers.infrastructure.scope import InfrastructureScope, cluster_name
from remuda.providers.shared.jobs import manifests
from remuda.providers.shared.jobs.job_context import JobContext
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.types.infrastructure import ENDPOINT_MACHINE, READY, RKE_CLUSTER, RKECluster
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome
from remuda.runtime.steps import step

NAME = "rkecluster"
_BY_CLUSTER = "cluster"
PUBLISH = step(
    "rkecluster.publish", "records that the infrastructure of a cluster is provisioned, and its API endpoint"
)
MOVE = step("rkecluster.move-endpoint", "moves a Cluster's API endpoint to another server after its server was deleted")


def add(manager: Manager, settings: MachineSettings | None = None) -> None:
    RKEClusterController(JobContext(manager, settings or MachineSettings()))


class RKEClusterController:
    def __init__(self, context: JobContext) -> None:
        self._context = context
        manager = context.manager
        index_by_cluster(manager.caches, MACHINE)
        self._objects = manager.caches.of(RKE_CLUSTER)
        self._objects.index(_BY_CLUSTER, _cluster_keys)
        self._clusters = manager.caches.of(CLUSTER)
        controller = manager.controller(NAME, RKE_CLUSTER, self.reconcile)
        controller.watch(self._clusters, _infrastructure_of, "cluster", facts=_facts)
        controller.watch(manager.caches.of(MACHINE), self._of_machine, "machine", facts=_machine_facts)
        controller.watch(context.jobs, _of_job, "job")

    def _of_machine(self, machine: Machine) -> Iterable[Key]:
        # Not by the Cluster: while a namespace is deleted, the Cluster can be gone before the last Machine.
        return self._objects.keys(_BY_CLUSTER, str(Key(machine.metadata.namespace, machine.spec.cluster_name)))

    async def reconcile(self, key: Key) -> Outcome:
        value = self._objects.raw(*key)
        if value is None:
            return DONE
        scope = InfrastructureScope(self._context, value)
        metadata = scope.obj.metadata
        if capi_names.EXTERNALLY_MANAGED in metadata.annotations:
            return DONE
        pause = paused(scope.cluster, metadata)
        if pause.status == conditions.TRUE:
            outcome: Outcome = Blocked("Paused", str(scope), pause.message)
        elif metadata.deleting:
            outcome = await work.remove(scope)
            if work.FINALIZER not in scope.obj.metadata.finalizers:
                return outcome
        else:
            outcome = await self._advance(scope)
        conditions.put(scope.draft.status, [pause], generation=scope.obj.metadata.generation)
        await scope.save(PUBLISH)
        await self._move_copy(scope)
        return outcome

    async def _advance(self, scope: InfrastructureScope) -> Outcome:
        if scope.cluster is None:
            why = "waiting for an owner: the Cluster that names this object in spec.infrastructureRef"
            self._ready(scope, False, "WaitingForCluster", why)
            return Blocked("WaitingForCluster", str(scope), why)
        if scope.obj.spec.infrastructure is not None or scope.known.driver:
            return await work.ensure(scope)
        scope.draft.status.setdefault("initialization", {})["provisioned"] = True
        self._ready(scope, True, "Provisioned")
        if choice := endpoint.choose(scope.obj, scope.cluster, scope.machines):
            before = scope.obj.spec.control_plane_endpoint
            scope.draft.spec["controlPlaneEndpoint"] = {"host": choice.endpoint.host, "port": choice.endpoint.port}
            scope.draft.set_annotation(ENDPOINT_MACHINE, choice.machine)
            scope.draft.set_annotation(BEFORE, str(before) if before is not None else None)
        return DONE

    def _ready(self, scope: InfrastructureScope, value: bool, reason: str, message: str = "") -> None:
        news = condition(READY, value, reason, message)
        conditions.put(scope.draft.status, [news], generation=scope.obj.metadata.generation)

    async def _move_copy(self, scope: InfrastructureScope) -> None:
        """Update the Cluster's copy of the endpoint, which Cluster API never does: see `endpoint`."""
        cluster, said = scope.cluster, scope.obj.spec.control_plane_endpoint
        if cluster is None or said is None or not endpoint.outdated(scope.obj, cluster):
            return
        value = self._clusters.raw(*cluster.key)
        if value is not None:
            draft = Draft(CLUSTER.target, value)
            draft.spec["controlPlaneEndpoint"] = {"host": said.host, "port": said.port}
            await save(self._context.client, draft, MOVE)


def _cluster_keys(obj: RKECluster) -> list[str]:
    return [str(Key(obj.metadata.namespace, cluster_name(obj)))]


def _infrastructure_of(cluster: Cluster) -> list[Key]:
    reference = cluster.spec.infrastructure_ref
    if reference is None or (reference.api_group, reference.kind) != (RKE_CLUSTER.group, RKE_CLUSTER.name):
        return []
    return [Key(cluster.metadata.namespace, reference.name)]


def _of_job(job: Job) -> Iterable[Key]:
    found = manifests.subject(job.metadata, RKE_CLUSTER)
    return () if found is None else (found,)


def _facts(cluster: Cluster) -> object:
    spec, initialized = cluster.spec, cluster.status.initialization.control_plane_initialized
    return spec.infrastructure_ref, spec.paused, spec.control_plane_endpoint, initialized, cluster.metadata.uid


def _machine_facts(machine: Machine) -> object:
    """Return the facts of a Machine that matter here; of a worker, only its existence does."""
    if not machine.is_control_plane:
        return None
    status = machine.status
    return machine.metadata.deleting, status.addresses, endpoint.is_done(machine)
