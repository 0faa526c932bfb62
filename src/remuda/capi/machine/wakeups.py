"""Who wakes a Machine: its own objects, its Cluster and owners, its Node.

Of Clusters and owners only what concerns Machines counts. Their status changes with every Machine's, so waking all
Machines with it would make the work of a cluster grow with the square of its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from remuda.capi import names
from remuda.capi.belonging import index_by_cluster, members
from remuda.capi.machine import nodelink
from remuda.capi.machine.scope import World
from remuda.capi.machinedeployment.revisions import essence
from remuda.capi.types import MACHINE, Cluster, Machine, MachineDeployment, MachineSet, Reference
from remuda.kube.objects import Key, Object
from remuda.runtime.controller import Controller

BY_OWNER = "machines by owner"  # an index of Machines: the uid of their controller


def listen(world: World, controller: Controller) -> None:
    """To be called before the caches start."""
    index_by_cluster(world.caches, MACHINE)
    world.machines.index(nodelink.BY_NODE, nodelink.places)
    world.machines.index(BY_OWNER, _owner)

    def of_cluster(cluster: Key) -> Iterable[Key]:
        return (machine.key for machine in members(world.caches, MACHINE, cluster))

    def of_set(machine_set: MachineSet) -> Iterable[Key]:
        return world.machines.keys(BY_OWNER, machine_set.metadata.uid)

    def of_deployment(deployment: MachineDeployment) -> Iterable[Key]:
        for machine_set in world.sets.all(deployment.metadata.namespace):
            owner = machine_set.metadata.controller
            if owner is not None and owner.uid == deployment.metadata.uid:
                yield from of_set(machine_set)

    def on_remote_change(cluster: Key, node: Any) -> None:
        keys = of_cluster(cluster) if node is None else nodelink.machines_of(world.machines, cluster, node)
        for key in keys:
            controller.enqueue(key)

    world.clusters.listen(_when_changed(controller, _cluster_facts, lambda cluster: of_cluster(cluster.key)))
    world.sets.listen(_when_changed(controller, _set_facts, of_set))
    world.deployments.listen(_when_changed(controller, _deployment_facts, of_deployment))
    world.externals.follow(controller, MACHINE, _references)
    world.remote.on_change(on_remote_change)


def _when_changed(
    controller: Controller, facts: Callable[[Any], object], keys: Callable[[Any], Iterable[Key]]
) -> Callable[[Any, Any, bool], None]:
    def changed(before: Object | None, after: Object | None, initial: bool) -> None:
        if before is None or after is None or facts(before) != facts(after):
            for key in keys(after or before):
                controller.enqueue(key)

    return changed


def _owner(machine: Machine) -> Iterable[str]:
    owner = machine.metadata.controller
    return (owner.uid,) if owner is not None else ()


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
