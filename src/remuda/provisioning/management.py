"""The management Cluster: the id a cluster is reached by (`/k8s/clusters/<id>`), and a namespace of the same name.

Its name is chosen once, at random or by the user, and written to the status of the provisioning Cluster before it is
created, so there are never two. Deleting either of the two deletes the other; the management Cluster is deleted last.
"""

from __future__ import annotations

import contextlib
from typing import Any

from remuda.capi import names as capi_names
from remuda.capi.cluster_index import index_by_cluster, members
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, Machine
from remuda.kube import conditions, random_source
from remuda.kube import names as kube_names
from remuda.kube.conditions import UNKNOWN, condition
from remuda.kube.core import NAMESPACES
from remuda.kube.errors import AlreadyExists, Conflict, NotFound, ignore_not_found
from remuda.kube.objects import Condition, Key
from remuda.provisioning import ProvisioningError
from remuda.provisioning.status import REMOTE_PROBE
from remuda.provisioning.types import (
    CLUSTER,
    MANAGEMENT_CLUSTER,
    PROVISIONED,
    READY,
    REMOVED,
    UPDATED,
    Cluster,
    ManagementCluster,
)
from remuda.runtime.controller import SETTLE_SECONDS
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue
from remuda.runtime.steps import step

NAME = "managementcluster"
FINALIZER = "remuda.dev/management-cluster"
ADMINISTRATED = "provisioning.cattle.io/administrated"  # annotation: its truth is a provisioning Cluster
CHOSEN_NAME = "provisioning.cattle.io/management-cluster-name"  # annotation of a provisioning Cluster
PROVIDER = "ui.rancher/provider"  # annotation of a provisioning Cluster: what its machines are on
DESCRIPTION = "field.cattle.io/description"
CONNECTED, NAMESPACE_CREATED = "Connected", "NamespaceCreated"

MAKE_NAMESPACE = step("managementcluster.create-namespace", "creates the namespace of a management Cluster")
DELETE_NAMESPACE = step("managementcluster.delete-namespace", "deletes the namespace of a management Cluster")
PUBLISH = step("managementcluster.publish", "writes a management Cluster's status")
DELETE_CLUSTER = step(
    "managementcluster.delete-cluster", "deletes the provisioning Cluster of a management Cluster that is being deleted"
)
DELETE = step("managementcluster.delete", "deletes the management Cluster of a deleted cluster")
RELEASE = step("managementcluster.release", "removes the finalizer of a management Cluster whose cluster is deleted")

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_BY_PROVISIONING = "provisioning cluster"
_NAMESPACE_SECONDS = 1.0


class BadName(ProvisioningError):
    """Error with a message for users."""


def choose_name(cluster: Cluster) -> str:
    """Raises BadName."""
    said = cluster.metadata.annotations.get(CHOSEN_NAME)
    if said is None:
        return f"c-m-{random_source.letters(_ALPHABET, 8)}"
    if complaints := kube_names.dns1123_label(said):
        raise BadName(f"annotation {CHOSEN_NAME} is not a valid name: {complaints[0]}")
    return said


def desired(cluster: Cluster, name: str) -> dict[str, Any]:
    metadata = cluster.metadata
    kept = {key: value for key, value in metadata.annotations.items() if key != capi_names.LAST_APPLIED}
    return {
        "apiVersion": MANAGEMENT_CLUSTER.api_version,
        "kind": MANAGEMENT_CLUSTER.name,
        "metadata": {
            "name": name,
            **({"labels": dict(metadata.labels)} if metadata.labels else {}),
            "annotations": {**kept, ADMINISTRATED: "true"},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "displayName": metadata.name,
            "description": metadata.annotations.get(DESCRIPTION, ""),
            "fleetWorkspaceName": metadata.namespace,
        },
    }


def provisioning_key(management: ManagementCluster) -> Key | None:
    """Return the key of its provisioning Cluster."""
    if management.metadata.annotations.get(ADMINISTRATED) != "true":
        return None
    return Key(management.spec.fleet_workspace_name, management.spec.display_name)


def machine_provider(cluster: Cluster) -> str:
    """Return Rancher's name of the provider: the driver of the first pool."""
    said = cluster.metadata.annotations.get(PROVIDER)
    config = cluster.spec.rke_config
    if said or config is None:
        return said or ""
    reference = config.machine_pools[0].machine_config_ref if config.machine_pools else None
    return "custom" if reference is None else reference.kind.removesuffix("Config").lower()


class Management:
    """Operations of both controllers on management Clusters."""

    def __init__(self, manager: Manager) -> None:
        self._client = manager.client
        self.objects = manager.caches.of(MANAGEMENT_CLUSTER)
        self.objects.index(_BY_PROVISIONING, _places)

    def of(self, key: Key) -> list[ManagementCluster]:
        return self.objects.select(_BY_PROVISIONING, str(key))

    async def end(self, management: ManagementCluster) -> bool:
        """Delete the namespace, then the management Cluster; return whether both are deleted."""
        name = management.metadata.name
        if not await self._namespace_gone(name):
            return False
        if not management.metadata.deleting:
            async with DELETE:
                await self._client.delete(MANAGEMENT_CLUSTER.target, "", name, uid=management.metadata.uid)
        value = self.objects.raw("", name)
        if value is not None:
            draft = Draft(MANAGEMENT_CLUSTER.target, value)
            draft.remove_finalizer(FINALIZER)
            await save(self._client, draft, RELEASE)
        return True

    async def make_namespace(self, name: str) -> None:
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        with contextlib.suppress(AlreadyExists):
            async with MAKE_NAMESPACE:
                await self._client.create(NAMESPACES, "", obj)

    async def _namespace_gone(self, name: str) -> bool:
        try:
            async with DELETE_NAMESPACE:
                await self._client.delete(NAMESPACES, "", name)
        except NotFound:
            return True
        except Conflict:
            pass  # its deletion is in progress
        return False


class ManagementController:
    """Controller of the status and the deletion of management Clusters."""

    def __init__(self, manager: Manager, management: Management) -> None:
        self._client = manager.client
        self._caches = manager.caches
        self._namespace = manager.namespace
        self._management = management
        self._clusters = manager.caches.of(CLUSTER)
        self._capi_clusters = manager.caches.of(CAPI_CLUSTER)
        index_by_cluster(manager.caches, MACHINE)
        controller = manager.controller(NAME, MANAGEMENT_CLUSTER, self.reconcile)
        controller.watch(self._clusters, lambda cluster: self._keys(cluster.key), "cluster")
        controller.watch(
            self._capi_clusters, lambda cluster: self._keys(cluster.key), "capi cluster", facts=_capi_facts
        )
        controller.watch(
            manager.caches.of(MACHINE),
            lambda machine: self._keys(Key(machine.metadata.namespace, machine.spec.cluster_name)),
            "machine",
            settle=SETTLE_SECONDS,
            facts=_machine_facts,
        )

    def _keys(self, cluster: Key) -> list[Key]:
        return self._management.objects.keys(_BY_PROVISIONING, str(cluster))

    async def reconcile(self, key: Key) -> Outcome:
        value = self._management.objects.raw(*key)
        if value is None:
            return DONE
        management = MANAGEMENT_CLUSTER.decode(value)
        of = provisioning_key(management)
        # A management Cluster has no namespace, so a manager of one namespace sees those of all others too.
        if of is None or self._namespace not in ("", of.namespace):
            return DONE  # somebody else's
        cluster = self._clusters.get(*of)
        if management.metadata.deleting:
            return await self._end(management, cluster)
        if cluster is None or cluster.status.cluster_name != management.metadata.name:
            return Blocked("NoCluster", f"Cluster {of}", "its provisioning Cluster does not refer to it")
        draft = Draft(MANAGEMENT_CLUSTER.target, value)
        if not conditions.is_true(management.status.conditions, NAMESPACE_CREATED):
            await self._management.make_namespace(key.name)
        self._describe(draft.status, management, cluster)
        await save(self._client, draft, PUBLISH)
        return DONE

    async def _end(self, management: ManagementCluster, cluster: Cluster | None) -> Outcome:
        # The Cluster must refer back: the spec of a management Cluster could name any Cluster to have it deleted.
        if cluster is not None and cluster.status.cluster_name == management.metadata.name:
            if not cluster.metadata.deleting:
                with ignore_not_found():
                    async with DELETE_CLUSTER:
                        await self._client.delete(CLUSTER.target, *cluster.key, uid=cluster.metadata.uid)
            return Blocked("Removing", f"Cluster {cluster.key}", "waiting for the deletion of its provisioning Cluster")
        if not await self._management.end(management):
            return Requeue(_NAMESPACE_SECONDS, f"waiting for the deletion of namespace {management.metadata.name}")
        return DONE

    def _describe(self, status: dict[str, Any], management: ManagementCluster, cluster: Cluster) -> None:
        status["info"] = {
            "machineProvider": machine_provider(cluster),
            "kubernetesVersion": cluster.spec.kubernetes_version,
            "nodeCount": len(members(self._caches, MACHINE, cluster.key)),
            "provisioningClusterRef": {"namespace": cluster.metadata.namespace, "name": cluster.metadata.name},
        }
        said = {one.type: one for one in cluster.status.conditions}
        mirrored = [said[type] for type in (READY, UPDATED, PROVISIONED, REMOVED) if type in said]
        news = [condition(NAMESPACE_CREATED, True, "Created"), self._connected(cluster), *mirrored]
        conditions.put(status, news, generation=management.metadata.generation)

    def _connected(self, cluster: Cluster) -> Condition:
        found = self._capi_clusters.get(*cluster.key)
        said = None if found is None else conditions.find(found.status.conditions, REMOTE_PROBE)
        if said is None:
            return condition(CONNECTED, UNKNOWN, "Waiting", "waiting for the first probe of the cluster's API")
        return condition(CONNECTED, said.status, said.reason or "Reported", said.message)


def _places(management: ManagementCluster) -> list[str]:
    key = provisioning_key(management)
    return [] if key is None else [str(key)]


def _capi_facts(cluster: Any) -> object:
    return conditions.find(cluster.status.conditions, REMOTE_PROBE)


def _machine_facts(machine: Machine) -> object:
    return machine.spec.cluster_name  # only how many there are
