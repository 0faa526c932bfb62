"""The objects of one Cluster: created, kept in their desired state, and deleted when they are no longer declared.

Cluster API's Cluster comes first and owns all others from their creation, so that nothing can be left behind. In an
autoscaled pool the autoscaler sets the number of machines: we write it once, and later only if it is out of bounds.
Machine templates are deleted when no MachineSet uses them any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.cluster_index import controlled_by, members
from remuda.capi.external import Externals
from remuda.capi.templates import cluster_owner
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import (
    MACHINE,
    MACHINE_DEPLOYMENT,
    MACHINE_HEALTH_CHECK,
    MACHINE_SET,
    Reference,
)
from remuda.capi.types import Cluster as CapiCluster
from remuda.kube.client import Target
from remuda.kube.errors import ignore_not_found
from remuda.kube.objects import Key, Kind, Object, OwnerReference
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP_TEMPLATE
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.provisioning import apply, consequence, pools
from remuda.provisioning.consequence import Consequence, Standing
from remuda.provisioning.generate import Desired, DesiredPool
from remuda.provisioning.types import CLUSTER, Cluster
from remuda.runtime.manager import Manager
from remuda.runtime.steps import Step, step

APPLY_CLUSTER = step("provisioningcluster.apply-cluster", "creates or updates the Cluster of Cluster API")
APPLY_INFRASTRUCTURE = step("provisioningcluster.apply-infrastructure", "creates or updates the RKECluster")
APPLY_CONTROL_PLANE = step("provisioningcluster.apply-control-plane", "creates or updates the RKEControlPlane")
APPLY_BOOTSTRAP = step("provisioningcluster.apply-bootstrap-template", "creates or updates an RKEBootstrapTemplate")
APPLY_TEMPLATE = step(
    "provisioningcluster.apply-machine-template", "creates a machine template, or updates its metadata"
)
APPLY_DEPLOYMENT = step("provisioningcluster.apply-deployment", "creates or updates the MachineDeployment of a pool")
APPLY_HEALTH_CHECK = step(
    "provisioningcluster.apply-health-check", "creates or updates the MachineHealthCheck of a pool"
)
PRUNE = step("provisioningcluster.prune", "deletes an object that a Cluster no longer declares")
COLLECT = step("provisioningcluster.collect-template", "deletes a machine template that is no longer used")

_Used = frozenset[tuple[str, str]]  # kind and name of machine templates


class ObjectApplier:
    """Applies and prunes the objects of Clusters. Create it before the caches start."""

    def __init__(self, manager: Manager, externals: Externals) -> None:
        self._client = manager.client
        self._caches = manager.caches
        self._externals = externals
        self._collected: dict[Key, _Used] = {}  # what was in use when templates were looked through last

    def forget(self, key: Key) -> None:
        self._collected.pop(key, None)

    async def make(self, cluster: Cluster, desired: Desired) -> list[Consequence]:
        """Apply the desired objects of a Cluster; return the consequences that are held."""
        namespace = cluster.metadata.namespace
        owner = controlled_by(CLUSTER, cluster.metadata)
        # This Cluster comes first: all other objects need its uid for their owner references.
        made = CAPI_CLUSTER.decode(await self._apply(CAPI_CLUSTER, namespace, desired.cluster, [owner], APPLY_CLUSTER))
        ruled, owned = controlled_by(CAPI_CLUSTER, made.metadata), cluster_owner(made)
        if desired.infrastructure is not None:
            await self._apply(RKE_CLUSTER, namespace, desired.infrastructure, [ruled], APPLY_INFRASTRUCTURE)
        await self._apply(RKE_CONTROL_PLANE, namespace, desired.control_plane, [ruled], APPLY_CONTROL_PLANE)
        for template in desired.bootstrap_templates:
            await self._apply(RKE_BOOTSTRAP_TEMPLATE, namespace, template, [owned], APPLY_BOOTSTRAP)
        held = []
        for pool in desired.pools:
            standing = await self._standing(cluster.key, pool)
            said = consequence.of_pool(pool, standing)
            # Apply the pool with its old template: all other changes of the pool still take effect.
            if said.held and standing is not None:
                held.append(said)
                pool = consequence.hold(pool, standing)
            await self._make_pool(namespace, pool, owned)
        await self._prune(made, desired)
        await self._collect(made, desired)
        return held

    async def _make_pool(self, namespace: str, pool: DesiredPool, owner: OwnerReference) -> None:
        if pool.template is not None:
            await self._apply_template(namespace, pool.template, owner)
        await self._apply_deployment(namespace, pool, owner)
        if pool.health_check is not None:
            await self._apply(MACHINE_HEALTH_CHECK, namespace, pool.health_check, [owner], APPLY_HEALTH_CHECK)

    async def _apply(
        self, kind: Kind[Any], namespace: str, obj: dict[str, Any], owners: Sequence[OwnerReference], by: Step
    ) -> bytes:
        present = self._caches.of(kind).raw(namespace, obj["metadata"]["name"])
        return await apply.apply(self._client, kind.target, namespace, present, apply.prepared(obj, owners), by)

    async def _apply_template(self, namespace: str, template: dict[str, Any], owner: OwnerReference) -> None:
        reference = _reference(template)
        present = await self._externals.get(reference, namespace)
        target = self._externals.resolve(reference.api_group, reference.kind).target
        value = None if present is None else present.value
        await apply.apply(self._client, target, namespace, value, apply.prepared(template, [owner]), APPLY_TEMPLATE)

    async def _apply_deployment(self, namespace: str, pool: DesiredPool, owner: OwnerReference) -> None:
        present = self._caches.of(MACHINE_DEPLOYMENT).raw(namespace, pool.deployment_name)
        obj = pool.deployment
        version = ""
        if present is not None and pool.autoscaled:
            found = MACHINE_DEPLOYMENT.decode(present)
            version = found.metadata.resource_version
            obj = pools.with_replicas(obj, found.spec.replicas)
        wanted = apply.prepared(obj, [owner], free=("replicas",) if pool.autoscaled else ())
        if version and not apply.is_applied(msgspec.json.decode(present or b"{}"), wanted):
            wanted["metadata"]["resourceVersion"] = (
                version  # otherwise a concurrent write of the autoscaler could be lost
            )
        await apply.apply(self._client, MACHINE_DEPLOYMENT.target, namespace, present, wanted, APPLY_DEPLOYMENT)

    # ---- what is there -----------------------------------------------------------------------------------------------

    async def _standing(self, cluster: Key, pool: DesiredPool) -> Standing | None:
        informer = self._caches.of(MACHINE_DEPLOYMENT)
        value = informer.raw(cluster.namespace, pool.deployment_name)
        if value is None:
            return None
        found = Standing(deployment=msgspec.json.decode(value))
        if found.infrastructure == pool.infrastructure:
            return found
        machines = [
            machine.metadata.name
            for machine in members(self._caches, MACHINE, cluster)
            if machine.metadata.labels.get(capi_names.DEPLOYMENT_NAME) == pool.deployment_name
        ]
        reference = msgspec.convert(found.infrastructure, Reference)
        template = await self._externals.get(reference, cluster.namespace) if reference.defined else None
        return msgspec.structs.replace(found, machines=machines, template=None if template is None else template.raw)

    # ---- what goes ---------------------------------------------------------------------------------------------------

    async def _prune(self, cluster: CapiCluster, desired: Desired) -> None:
        """Delete our objects that are no longer declared. Health checks go first, so that they replace no machine."""
        key = cluster.key
        checks = {pool.deployment_name for pool in desired.pools if pool.health_check is not None}
        await self._prune_kind(MACHINE_HEALTH_CHECK, key, checks)
        deployments = {pool.deployment_name for pool in desired.pools}
        await self._prune_kind(MACHINE_DEPLOYMENT, key, deployments)
        used = {str(template["metadata"]["name"]) for template in desired.bootstrap_templates}
        # During a rollout, MachineSets of earlier revisions still create Machines from their own templates.
        for owner in self._makers(key):
            config = owner.spec.template.spec.bootstrap.config_ref
            used |= {config.name} if config is not None else set()
        await self._prune_kind(RKE_BOOTSTRAP_TEMPLATE, key, used)

    async def _prune_kind(self, kind: Kind[Any], cluster: Key, wanted: set[str]) -> None:
        for obj in members(self._caches, kind, cluster):
            # Users may add objects of these kinds to the cluster: without our annotation, they stay.
            ours = apply.APPLIED in obj.metadata.annotations
            if ours and obj.metadata.name not in wanted and not obj.metadata.deleting:
                await self._delete(kind.target, obj.key, obj.metadata.uid, PRUNE)

    async def _collect(self, cluster: CapiCluster, desired: Desired) -> None:
        """Delete unused machine templates. They are listed only when the set of templates in use has changed."""
        used = _Used(
            (reference.kind, reference.name)
            for owner in self._makers(cluster.key)
            if (reference := owner.spec.template.spec.infrastructure_ref).api_group == names.MACHINE_GROUP
        )
        used |= {(pool.template["kind"], pool.template["metadata"]["name"]) for pool in desired.pools if pool.template}
        before = self._collected.get(cluster.key)
        if before == used:
            return
        for kind in sorted({kind for kind, _ in used | (before or frozenset())}):
            target = self._externals.resolve(names.MACHINE_GROUP, kind).target
            selector = f"{names.CLUSTER_NAME}={cluster.metadata.name}"
            for value in (await self._client.list(target, cluster.metadata.namespace, label_selector=selector)).items:
                metadata = msgspec.json.decode(value, type=Object).metadata
                ours = apply.APPLIED in metadata.annotations
                if ours and (kind, metadata.name) not in used and not metadata.deleting:
                    await self._delete(target, metadata.key, metadata.uid, COLLECT)
        self._collected[cluster.key] = used

    def _makers(self, cluster: Key) -> list[Any]:
        """Return the MachineDeployments and MachineSets of a cluster."""
        return [*members(self._caches, MACHINE_DEPLOYMENT, cluster), *members(self._caches, MACHINE_SET, cluster)]

    async def _delete(self, target: Target, key: Key, uid: str, by: Step) -> None:
        with ignore_not_found():
            async with by:
                await self._client.delete(target, *key, uid=uid)


def _reference(obj: dict[str, Any]) -> Reference:
    group = str(obj["apiVersion"]).rpartition("/")[0]
    return Reference(api_group=group, kind=obj["kind"], name=obj["metadata"]["name"])
