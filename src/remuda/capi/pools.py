"""Dependencies shared by the MachineSet and MachineDeployment controllers, and the index of the objects they
control."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from remuda.capi.external import Externals
from remuda.capi.propagation import Ownership
from remuda.capi.types import (
    CLUSTER,
    MACHINE,
    MACHINE_DEPLOYMENT,
    MACHINE_SET,
    Cluster,
    Machine,
    MachineDeployment,
    MachineSet,
)
from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key, Object
from remuda.runtime.events import Events
from remuda.runtime.informer import Informer
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import Retryable

CONCURRENCY = 50
EXPECTED = (Retryable, StatusError, OSError, TimeoutError)  # reported in a condition, and retried
BY_CONTROLLER = "by controller, or without one"  # an index of Machines, and one of MachineSets


@dataclass(frozen=True, kw_only=True)
class PoolDependencies:
    client: Client
    externals: Externals
    ownership: Ownership
    events: Events
    machines: Informer[Machine]
    sets: Informer[MachineSet]
    deployments: Informer[MachineDeployment]
    clusters: Informer[Cluster]
    # By set, then by uid of the Machine: the versions of all objects at the last propagation to this Machine.
    propagated: dict[Key, dict[str, object]] = field(default_factory=dict)

    @classmethod
    def of(cls, manager: Manager, externals: Externals) -> PoolDependencies:
        caches = manager.caches
        world = cls(
            client=manager.client,
            externals=externals,
            ownership=Ownership(manager.client),
            events=manager.events,
            machines=caches.of(MACHINE),
            sets=caches.of(MACHINE_SET),
            deployments=caches.of(MACHINE_DEPLOYMENT),
            clusters=caches.of(CLUSTER),
        )
        index_by_controller(world.machines, world.sets)
        return world


def index_by_controller(*informers: Informer[Any]) -> None:
    """To be called before the caches start; asked twice, it is done once."""
    for informer in informers:
        informer.index(BY_CONTROLLER, _place_of)


def _place_of(obj: Object) -> Iterable[str]:
    owner = obj.metadata.controller
    return (owner.uid,) if owner is not None else (uncontrolled_key(obj.metadata.namespace),)


def uncontrolled_key(namespace: str) -> str:
    """Return the index key of a namespace's objects without a controller."""
    return f"no controller in {namespace}"
