"""Events that requeue a control plane: changes of its Cluster's objects, host reports, objects its spec names, and
Nodes.

Only the fields that a decision depends on count. Times, outputs and other controllers' conditions change far more
often.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.capi import names as capi_names
from remuda.capi.machine.deletion import awaits_last_hooks
from remuda.capi.types import MACHINE_DEPLOYMENT, Cluster, Machine, MachineDeployment
from remuda.kube import conditions
from remuda.kube.core import Secret
from remuda.kube.objects import Key, Object
from remuda.providers.controlplane import gather, hosts, plan_secrets, references
from remuda.providers.controlplane.gather import Gatherer
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import AGENT_CONNECTED, RKEBootstrap
from remuda.providers.shared.types.controlplane import RKEControlPlane
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER, RKECluster
from remuda.runtime.caches import Caches
from remuda.runtime.controller import Controller
from remuda.runtime.informer import Informer
from remuda.runtime.remote import RemoteClusters

_BY_CLUSTER = "control planes by cluster"
_BY_NAMED = "control planes by what they name"
_CLUSTERS_BY_LABEL = "clusters by label"
_BY_INFRASTRUCTURE = "clusters by infrastructure"
_REPORT_SECONDS = 0.2  # hosts of one cluster report by the dozen
_NODE_SECONDS = 1.0
_CONDITIONS = ("InfrastructureReady", "BootstrapConfigReady", "NodeReady")


def planes_of(planes: Informer[RKEControlPlane], cluster: Key) -> list[Key]:
    return planes.keys(_BY_CLUSTER, str(cluster))


def listen(
    controller: Controller,
    planes: Informer[RKEControlPlane],
    source: Gatherer,
    caches: Caches,
    remote: RemoteClusters,
) -> None:
    """To be called before the caches start."""
    planes.index(_BY_CLUSTER, lambda plane: (str(Key(plane.metadata.namespace, plane.spec.cluster_name)),))
    planes.index(_BY_NAMED, lambda plane: {*references.names(plane), *gather.owned_secret_places(plane)})
    source.clusters.index(_CLUSTERS_BY_LABEL, lambda cluster: (_labelled(cluster.metadata.namespace, cluster),))
    source.clusters.index(_BY_INFRASTRUCTURE, _infrastructure_of)

    def of_cluster(cluster: Key) -> list[Key]:
        return planes_of(planes, cluster)

    def of_machine(machine: Machine) -> list[Key]:
        """Return the keys for a Machine, including a deleted control plane: the Machine may still wait for it."""
        if not hosts.is_ours(machine):
            return []
        cluster = Key(machine.metadata.namespace, machine.spec.cluster_name)
        return of_cluster(cluster) or ([cluster] if hosts.HOOK in machine.metadata.annotations else [])

    def of_labelled(obj: Object, label: str) -> Iterable[Key]:
        value = obj.metadata.labels.get(label, "")
        for cluster in source.clusters.keys(_CLUSTERS_BY_LABEL, f"{obj.metadata.namespace}/{value}"):
            yield from of_cluster(cluster)

    def of_bootstrap(bootstrap: RKEBootstrap) -> Iterable[Key]:
        if bootstrap.spec.cluster_name:
            return of_cluster(Key(bootstrap.metadata.namespace, bootstrap.spec.cluster_name))
        return of_labelled(bootstrap, capi_names.CLUSTER_NAME)

    def of_infrastructure(infrastructure: RKECluster) -> Iterable[Key]:
        for cluster in source.clusters.keys(_BY_INFRASTRUCTURE, str(infrastructure.key)):
            yield from of_cluster(cluster)

    def of_deployment(deployment: MachineDeployment) -> list[Key]:
        return of_cluster(Key(deployment.metadata.namespace, deployment.spec.cluster_name))

    def of_plan(secret: Secret) -> Iterable[Key]:
        return of_labelled(secret, names.CLUSTER_NAME) if secret.type == names.PLAN_TYPE else ()

    def on_node(cluster: Key, node: Any) -> None:
        for key in of_cluster(cluster):
            controller.enqueue(key, 0.0 if node is None else _NODE_SECONDS)

    def on_cluster(before: Cluster | None, after: Cluster | None, initial: bool) -> None:
        if before is not None and after is None:
            remote.forget(before.key)

    named = source.named
    controller.watch(source.clusters, lambda cluster: of_cluster(cluster.key), "cluster", facts=_cluster_facts)
    controller.watch(source.machines, of_machine, "machine", facts=_machine_facts)
    controller.watch(source.bootstraps, of_bootstrap, "bootstrap", facts=_bootstrap_facts)
    controller.watch(source.plan_secrets, of_plan, "plan", facts=plan_secrets.facts, settle=_REPORT_SECONDS)
    controller.watch(caches.of(MACHINE_DEPLOYMENT), of_deployment, "pool", facts=_deployment_facts)
    controller.watch(source.infrastructure, of_infrastructure, "infrastructure", facts=_infrastructure_facts)
    for kind, informer in (("Secret", named.secrets), ("ConfigMap", named.config_maps)):
        controller.watch(informer, _naming(planes, kind), f"named {kind}")
    source.clusters.listen(on_cluster)
    remote.on_change(on_node)
    remote.on_probe(lambda cluster: on_node(cluster, None))


def _naming(planes: Informer[RKEControlPlane], kind: str) -> Any:
    return lambda obj: planes.keys(_BY_NAMED, references.place(kind, obj.key))


def _labelled(namespace: str, cluster: Cluster) -> str:
    return f"{namespace}/{capi_names.label_value(cluster.metadata.name)}"


def _infrastructure_of(cluster: Cluster) -> list[str]:
    reference = cluster.spec.infrastructure_ref
    if reference is None or (reference.api_group, reference.kind) != (RKE_CLUSTER.group, RKE_CLUSTER.name):
        return []
    return [str(Key(cluster.metadata.namespace, reference.name))]


def _cluster_facts(cluster: Cluster) -> object:
    return cluster.spec, cluster.status.initialization, cluster.metadata.deleting, cluster.metadata.uid


def _machine_facts(machine: Machine) -> object:
    metadata, status = machine.metadata, machine.status
    found = [conditions.find(status.conditions, type) for type in _CONDITIONS]
    states = [conditions.is_true(status.conditions, type) for type in ("Ready", "Available")]
    drained = awaits_last_hooks(machine)
    return (
        (metadata.labels, metadata.annotations, metadata.deleting, metadata.uid),
        (machine.spec.provider_id, status.addresses, status.initialization, status.node_ref, drained),
        [(one.status, one.reason, one.message) for one in found if one is not None],
        states,
    )


def _bootstrap_facts(bootstrap: RKEBootstrap) -> object:
    metadata = bootstrap.metadata
    connected = conditions.is_true(bootstrap.status.conditions, AGENT_CONNECTED)
    return metadata.labels, metadata.annotations, metadata.owner_references, metadata.deleting, connected


def _deployment_facts(deployment: MachineDeployment) -> object:
    template = deployment.spec.template
    return deployment.spec.replicas, template.metadata.labels, template.spec.bootstrap, deployment.metadata.deleting


def _infrastructure_facts(infrastructure: RKECluster) -> object:
    return infrastructure.spec.control_plane_endpoint, infrastructure.metadata.annotations
