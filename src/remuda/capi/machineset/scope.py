"""One reconcile of one MachineSet: what it works with (`World`) and what it has found out so far (`Scope`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from remuda.capi import names
from remuda.capi.external import Externals
from remuda.capi.propagation import Ownership
from remuda.capi.types import MACHINE_SET, Cluster, Machine, MachineDeployment, MachineSet
from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.kube.objects import Object, OwnerReference
from remuda.runtime.draft import Draft
from remuda.runtime.events import Events
from remuda.runtime.informer import Informer
from remuda.runtime.outcome import Outcome

Json = dict[str, Any]

BY_CONTROLLER = "by controller, or without one"  # an index of Machines, and one of MachineSets


@dataclass(frozen=True, kw_only=True)
class World:
    client: Client
    externals: Externals
    ownership: Ownership
    events: Events
    machines: Informer[Machine]
    sets: Informer[MachineSet]
    deployments: Informer[MachineDeployment]
    clusters: Informer[Cluster]


@dataclass(kw_only=True)
class Scope:
    draft: Draft
    machine_set: MachineSet  # as read
    cluster: Cluster | None
    deployment: MachineDeployment | None  # the one that controls the set
    machines: list[Machine]  # those the set controls, by name
    obstacles: list[str] = field(default_factory=list)  # why no Machines are made
    waits: list[Outcome] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return self.machine_set.metadata.namespace

    @property
    def template(self) -> Json:
        """As written: fields that are not known here reach the Machines too."""
        found: Json = self.draft.base["spec"]["template"]
        return found


def index_by_controller(*informers: Informer[Any]) -> None:
    """To be called before the caches start; asked twice, it is done once."""
    for informer in informers:
        informer.index(BY_CONTROLLER, _place_of)


def _place_of(obj: Object) -> Iterable[str]:
    owner = obj.metadata.controller
    return (owner.uid,) if owner is not None else (orphanage(obj.metadata.namespace),)


def orphanage(namespace: str) -> str:
    """Where the index keeps what nobody controls."""
    return f"nobody's in {namespace}"


def is_conflict(error: Exception) -> bool:
    """Somebody was faster: the run is over, and nothing has to be said about it."""
    return isinstance(error, StatusError) and error.reason == "Conflict"


def controlled_by(machine_set: MachineSet) -> OwnerReference:
    return OwnerReference(
        api_version=MACHINE_SET.api_version,
        kind=MACHINE_SET.name,
        name=machine_set.metadata.name,
        uid=machine_set.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def machine_labels(machine_set: MachineSet) -> dict[str, str]:
    """What every Machine of the set, and every object made for one, is labelled with."""
    metadata, spec = machine_set.metadata, machine_set.spec
    labels = {
        **spec.template.metadata.labels,
        names.CLUSTER_NAME: names.label_value(spec.cluster_name),
        names.SET_NAME: names.label_value(metadata.name),
    }
    if names.DEPLOYMENT_NAME in metadata.labels:
        labels[names.DEPLOYMENT_NAME] = metadata.labels[names.DEPLOYMENT_NAME]
    return labels
