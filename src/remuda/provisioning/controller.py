"""Controller of provisioning Clusters: it creates, updates and deletes every object that one declaration implies.

    finalizer and name of the management Cluster → the management Cluster → Configs and credentials of the pools →
    the objects: Cluster API's Cluster first, which owns the others → objects that are no longer declared are
    deleted → one status

While the declaration has an error, nothing is created: the status reports the error, and existing objects stay. A pool
that may not replace its machines keeps its machine template, and the condition Held reports that. The controller never
changes spec.paused of the Cluster of Cluster API.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from remuda.capi.cluster_index import index_by_cluster, members
from remuda.capi.external import Externals
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK, MACHINE_SET
from remuda.capi.types import Cluster as CapiCluster
from remuda.kube import clock, conditions
from remuda.kube.errors import Conflict, StatusError, ignore_not_found
from remuda.kube.objects import Key, Kind, Object
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP_TEMPLATE
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.provisioning import ProvisioningError, apply, generate, management, removal, status
from remuda.provisioning.admission import cluster as judging
from remuda.provisioning.consequence import Consequence
from remuda.provisioning.generate import CannotBeMade
from remuda.provisioning.machine_configs import MachineConfigs, config_reference
from remuda.provisioning.management import BadName, Management
from remuda.provisioning.objects import ObjectApplier
from remuda.provisioning.status import REMOTE_PROBE, ClusterStatusInputs, Problem
from remuda.provisioning.types import CLUSTER, MANAGEMENT_CLUSTER, Cluster, ManagementCluster
from remuda.runtime.controller import SETTLE_SECONDS
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue, Retryable
from remuda.runtime.steps import Step, step

NAME = "provisioningcluster"
FINALIZER = "remuda.dev/provisioning-cluster"

PROTECT = step(
    "provisioningcluster.protect", "adds a Cluster's finalizer and records the name of its management Cluster"
)
APPLY_MANAGEMENT = step("provisioningcluster.apply-management", "creates or updates a management Cluster")
DELETE = step("provisioningcluster.delete", "deletes an object of a Cluster that is being deleted")
DELETE_MISSING = step(
    "provisioningcluster.delete-missing", "deletes the Machine of a self-registered host whose Node was deleted"
)
PUBLISH = step("provisioningcluster.publish", "writes a Cluster's status")
RELEASE = step("provisioningcluster.release", "removes the finalizer of a Cluster whose objects are all deleted")

_MACHINE_MAKERS: tuple[Kind[Any], ...] = (MACHINE_DEPLOYMENT, MACHINE_SET)
_MEMBERS: tuple[Kind[Any], ...] = (*_MACHINE_MAKERS, MACHINE_HEALTH_CHECK, RKE_BOOTSTRAP_TEMPLATE)
_PROVIDERS: tuple[Kind[Any], ...] = (RKE_CONTROL_PLANE, RKE_CLUSTER)
_LOOK_AGAIN_SECONDS = 15.0  # at what cannot be watched: a credential
_NAMESPACE_SECONDS = 1.0


class _Stopped(ProvisioningError):
    """Stop this reconcile because of a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class ProvisioningController:
    def __init__(self, manager: Manager, externals: Externals, found: Management) -> None:
        self._client = manager.client
        self._events = manager.events
        self._caches = manager.caches
        self._management = found
        self._clusters = manager.caches.of(CLUSTER)
        self._capi_clusters = manager.caches.of(CAPI_CLUSTER)
        self._control_planes = manager.caches.of(RKE_CONTROL_PLANE)
        self._materials = MachineConfigs(manager, externals)
        self._objects = ObjectApplier(manager, externals)
        controller = manager.controller(NAME, CLUSTER, self.reconcile)
        externals.follow(controller, CLUSTER, _configs_of)
        controller.watch(found.objects, _of_management, "management cluster", facts=_head_facts)
        controller.watch(self._capi_clusters, _same_key, "capi cluster", facts=_capi_facts)
        controller.watch(self._control_planes, _same_key, "control plane", facts=_control_plane_facts)
        controller.watch(manager.caches.of(RKE_CLUSTER), _same_key, "infrastructure", facts=_head_facts)
        for kind in _MEMBERS:
            index_by_cluster(manager.caches, kind)
            facts = _deployment_facts if kind is MACHINE_DEPLOYMENT else _head_facts
            controller.watch(manager.caches.of(kind), _of_member, kind.plural, facts=facts)
        index_by_cluster(manager.caches, MACHINE)
        controller.watch(
            manager.caches.of(MACHINE), _of_member, "machines", settle=SETTLE_SECONDS, facts=_machine_facts
        )

    async def reconcile(self, key: Key) -> Outcome:
        value = self._clusters.raw(*key)
        if value is None:
            self._objects.forget(key)
            return DONE
        cluster = CLUSTER.decode(value)
        if cluster.metadata.deleting:
            return await self._remove(cluster, value)
        return await self._provide(cluster, value)

    # ---- as it shall be ----------------------------------------------------------------------------------------------

    async def _provide(self, cluster: Cluster, value: bytes) -> Outcome:
        problem: Problem | None = None
        not_created: Problem | None = None
        held: list[Consequence] = []
        try:
            self._check(cluster)
            try:
                value = await self._protect(cluster, value)
                cluster = CLUSTER.decode(value)
                await self._keep_management(cluster)
            except _Stopped as stopped:
                not_created = stopped.problem
                raise
            held = await self._make(cluster, value)
        except _Stopped as stopped:
            problem = stopped.problem
        except Conflict:  # another writer was faster: the next run decides anew, and no condition reports it
            raise
        except (Retryable, StatusError) as error:
            problem = Problem("Failed", f"{error}; the controller retries", lasting=False)
            await self._publish(cluster, value, not_created, problem, held)
            raise
        await self._publish(cluster, value, not_created, problem, held)
        if problem is None:
            return await self._delete_missing(cluster)
        return Blocked(problem.reason, f"Cluster {cluster.key}", problem.message, _LOOK_AGAIN_SECONDS)

    @staticmethod
    def _check(cluster: Cluster) -> None:
        """Check the declaration again: without our webhooks, admission has not done so. Raises _Stopped."""
        wrong = generate.complaints(cluster) or [str(one) for one in judging.complaints(cluster)]
        try:
            removal.grace_period(cluster)
        except clock.BadDuration as error:
            wrong.append(f"the annotation {generate.DELETE_MISSING} {error}")
        if wrong:
            raise _Stopped(Problem("NotPossible", "; ".join(wrong)))

    async def _delete_missing(self, cluster: Cluster) -> Outcome:
        seconds = removal.grace_period(cluster)
        if seconds is None:
            return DONE
        found = removal.find_missing(members(self._caches, MACHINE, cluster.key), seconds, clock.time())
        for machine in found.overdue:
            await self._delete(MACHINE, machine, DELETE_MISSING)
            self._events.normal(cluster, "HostMissing", f"deleting Machine {machine.key}: its Node was deleted")
        if found.next_seconds is None:
            return DONE
        return Requeue(
            found.next_seconds, "the Machine of a self-registered host is due for deletion: its Node was deleted"
        )

    async def _delete(self, kind: Kind[Any], obj: Object, by: Step) -> None:
        with ignore_not_found():
            async with by:
                await self._client.delete(kind.target, *obj.key, uid=obj.metadata.uid)

    async def _protect(self, cluster: Cluster, value: bytes) -> bytes:
        """Record finalizer and management name before anything is created, so that a second run keeps the name."""
        draft = Draft(CLUSTER.target, value)
        draft.add_finalizer(FINALIZER)
        if not cluster.status.cluster_name:
            try:
                draft.status["clusterName"] = management.choose_name(cluster)
            except BadName as error:
                raise _Stopped(Problem("BadName", str(error))) from None
        return await save(self._client, draft, PROTECT)

    async def _keep_management(self, cluster: Cluster) -> None:
        name = cluster.status.cluster_name
        value = self._management.objects.raw("", name)
        if value is not None:
            present = MANAGEMENT_CLUSTER.decode(value)
            # A user may choose this name, so it may be that of another cluster's management Cluster.
            if management.provisioning_key(present) != cluster.key:
                raise _Stopped(
                    Problem(
                        "NameTaken",
                        f"Cluster {name} of {MANAGEMENT_CLUSTER.group} belongs to another provisioning Cluster",
                    )
                )
            if present.metadata.deleting:
                raise _Stopped(
                    Problem("Removing", f"waiting for the deletion of management Cluster {name}", lasting=False)
                )
        wanted = apply.prepared(management.desired(cluster, name))
        await apply.apply(self._client, MANAGEMENT_CLUSTER.target, "", value, wanted, APPLY_MANAGEMENT)

    async def _make(self, cluster: Cluster, value: bytes) -> list[Consequence]:
        """Create or update the objects of a Cluster; return the consequences that are held."""
        present = self._capi_clusters.get(*cluster.key)
        # Never take over a Cluster that another client has created: the deletion of this one would delete its machines.
        if present is not None and (owner := _foreign_owner(present, cluster)):
            raise _Stopped(Problem("NameTaken", f"Cluster {CAPI_CLUSTER.group} {present.key} {owner}"))
        if present is not None and present.metadata.deleting:
            why = (
                f"Cluster {CAPI_CLUSTER.group} {present.key} is being deleted; the controller creates it again "
                "afterwards"
            )
            raise _Stopped(Problem("Removing", why, lasting=False))
        try:
            materials = await self._materials.gather(cluster)
            raw = msgspec.json.decode(value)
            desired = generate.generate(raw, cluster, materials, cluster.status.cluster_name)
        except CannotBeMade as error:
            raise _Stopped(Problem("Error", str(error))) from None
        held = await self._objects.make(cluster, desired)
        for one in held:
            self._events.warning(cluster, "Held", str(one))
        return held

    async def _publish(
        self,
        cluster: Cluster,
        value: bytes,
        not_created: Problem | None,
        problem: Problem | None,
        held: list[Consequence],
    ) -> None:
        # Others may have written the object during this run: a status for the old version would only conflict.
        draft = Draft(CLUSTER.target, self._clusters.raw(*cluster.key) or value)
        facts = ClusterStatusInputs(
            not_created=not_created,
            not_made=problem,
            held=held,
            control_plane=self._control_planes.get(*cluster.key),
            capi_cluster=self._capi_clusters.get(*cluster.key),
            deployments=members(self._caches, MACHINE_DEPLOYMENT, cluster.key),
        )
        status.write(draft.status, cluster, facts)
        await save(self._client, draft, PUBLISH)

    # ---- gone --------------------------------------------------------------------------------------------------------

    async def _remove(self, cluster: Cluster, value: bytes) -> Outcome:
        if FINALIZER not in cluster.metadata.finalizers:
            return DONE
        stage = removal.plan(self._left(cluster))
        for kind, obj in stage.delete:
            await self._delete(kind, obj, DELETE)
        if stage.waits:
            await self._say_removing(cluster, value, stage.waits[0].reason, stage.message)
            return Blocked(stage.waits[0].reason, stage.waits[0].on, stage.message)
        for present in self._management.of(cluster.key):
            if present.metadata.name != cluster.status.cluster_name:
                continue
            if not await self._management.end(present):
                why = f"waiting for the deletion of namespace {present.metadata.name} of the management Cluster"
                await self._say_removing(cluster, value, "WaitingForNamespace", why)
                return Requeue(_NAMESPACE_SECONDS, why)
        draft = Draft(CLUSTER.target, value)
        draft.remove_finalizer(FINALIZER)
        await save(self._client, draft, RELEASE)
        return DONE

    def _left(self, cluster: Cluster) -> removal.RemainingObjects:
        key = cluster.key
        others: list[tuple[Kind[Any], Object]] = []
        for kind in _MACHINE_MAKERS:
            others += [(kind, obj) for obj in members(self._caches, kind, key)]
        for kind in _PROVIDERS:
            obj = self._caches.of(kind).get(*key)
            # An object without our annotation was created by another client, and is not ours to delete.
            if obj is not None and apply.APPLIED in obj.metadata.annotations:
                others.append((kind, obj))
        present = self._capi_clusters.get(*key)
        if present is not None and _foreign_owner(present, cluster):
            return removal.RemainingObjects()  # none of it is ours
        return removal.RemainingObjects(cluster=present, machines=members(self._caches, MACHINE, key), others=others)

    async def _say_removing(self, cluster: Cluster, value: bytes, reason: str, message: str) -> None:
        draft = Draft(CLUSTER.target, value)
        status.write_removal(draft.status, cluster, reason, message)
        await save(self._client, draft, PUBLISH)


def _foreign_owner(present: CapiCluster, cluster: Cluster) -> str:
    """Return why a Cluster API Cluster does not belong to this Cluster; empty if it does."""
    owner = present.metadata.controller
    if owner is None:
        return "already exists, and was not created by this Cluster"
    return "" if owner.uid == cluster.metadata.uid else f"belongs to {owner.kind} {owner.name}"


# ---- what wakes a Cluster --------------------------------------------------------------------------------------------


def _configs_of(cluster: Cluster) -> Iterable[Any]:
    config = cluster.spec.rke_config
    return [config_reference(pool) for pool in config.machine_pools] if config is not None else []


def _of_management(found: ManagementCluster) -> list[Key]:
    key = management.provisioning_key(found)
    return [] if key is None else [key]


def _same_key(obj: Object) -> list[Key]:
    return [obj.key]


def _of_member(obj: Any) -> list[Key]:
    return [Key(obj.metadata.namespace, obj.spec.cluster_name)]


def _head_facts(obj: Object) -> object:
    metadata = obj.metadata
    return metadata.uid, metadata.generation, metadata.labels, metadata.annotations, metadata.deletion_timestamp


def _deployment_facts(deployment: Any) -> object:
    return _head_facts(deployment), status.exceeded_quota(deployment)


def _capi_facts(cluster: CapiCluster) -> object:
    said = cluster.status.conditions
    return _head_facts(cluster), conditions.find(said, REMOTE_PROBE), conditions.find(said, "Deleting")


def _control_plane_facts(control_plane: RKEControlPlane) -> object:
    said = control_plane.status
    return _head_facts(control_plane), said.observed_generation, said.initialization, said.conditions


def _machine_facts(machine: Any) -> object:
    said, metadata = machine.status.conditions, machine.metadata
    deleting = conditions.find(said, "Deleting") if metadata.deleting else None
    healthy = conditions.find(said, "NodeHealthy")
    gone = healthy is not None and healthy.reason == "NodeDeleted"
    return machine.spec.cluster_name, metadata.labels, metadata.deletion_timestamp, deleting, gone
