"""Events that requeue a Machine: changes of its own objects, its Cluster and owners, its Node.

Of Clusters and owners, only changes that concern Machines count. Their status changes with every Machine's, so
requeueing all Machines with it would make the work of a cluster grow with the square of its size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.capi import names
from remuda.capi.cluster_index import index_by_cluster, members
from remuda.capi.machine import node_link
from remuda.capi.machine.scope import MachineDependencies
from remuda.capi.pools import BY_CONTROLLER, index_by_controller
from remuda.capi.revisions import essence
from remuda.capi.types import MACHINE, Cluster, Machine, MachineDeployment, MachineSet, Reference
from remuda.kube.objects import Key
from remuda.runtime.controller import Controller


def listen(world: MachineDependencies, controller: Controller) -> None:
    """Register the watches. Call it before the caches start."""
    index_by_cluster(world.caches, MACHINE)
    world.machines.index(node_link.BY_NODE, node_link.places)
    index_by_controller(world.machines, world.sets)

    def of_cluster(cluster: Key) -> Iterable[Key]:
        return (machine.key for machine in members(world.caches, MACHINE, cluster))

    def of_set(machine_set: MachineSet) -> Iterable[Key]:
        return world.machines.keys(BY_CONTROLLER, machine_set.metadata.uid)

    def of_deployment(deployment: MachineDeployment) -> Iterable[Key]:
        for machine_set in world.sets.select(BY_CONTROLLER, deployment.metadata.uid):
            yield from of_set(machine_set)

    def on_remote_change(cluster: Key, node: Any) -> None:
        keys = of_cluster(cluster) if node is None else node_link.machines_of(world.machines, cluster, node)
        for key in keys:
            controller.enqueue(key)

    controller.watch(world.clusters, lambda cluster: of_cluster(cluster.key), facts=_cluster_facts)
    controller.watch(world.sets, of_set, facts=_set_facts)
    controller.watch(world.deployments, of_deployment, facts=_deployment_facts)
    world.externals.follow(controller, MACHINE, _references)
    world.remote.on_change(on_remote_change)


def _references(machine: Machine) -> Iterable[Reference | None]:
    return machine.spec.bootstrap.config_ref, machine.spec.infrastructure_ref


def _cluster_facts(cluster: Cluster) -> object:
    metadata = cluster.metadata
    return cluster.spec, cluster.status.initialization, metadata.deleting, metadata.labels, metadata.uid


def _set_facts(machine_set: MachineSet) -> object:
    return essence(machine_set.spec.template), machine_set.metadata.annotations.get(names.REVISION)


def _deployment_facts(deployment: MachineDeployment) -> object:
    after = deployment.spec.rollout.after
    return essence(deployment.spec.template), after, deployment.metadata.annotations.get(names.REVISION)
