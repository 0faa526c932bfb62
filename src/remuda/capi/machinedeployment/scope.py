"""One reconcile of one MachineDeployment: what it works with (`World`) and what it has found out so far (`Scope`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remuda.capi.external import Externals
from remuda.capi.machinedeployment.revisions import Sets
from remuda.capi.propagation import Ownership
from remuda.capi.types import MACHINE_DEPLOYMENT, Cluster, Machine, MachineDeployment, MachineSet
from remuda.kube.client import Client
from remuda.kube.objects import OwnerReference
from remuda.runtime.draft import Draft
from remuda.runtime.events import Events
from remuda.runtime.informer import Informer
from remuda.runtime.outcome import Outcome

Json = dict[str, Any]


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
    deployment: MachineDeployment  # as read
    cluster: Cluster | None
    sets: Sets
    now: float
    obstacles: list[str] = field(default_factory=list)  # why no Machines are made
    waiting: str = ""  # what keeps a rollout from going on
    moved: bool = False  # sets were told something in this run, and will answer
    waits: list[Outcome] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return self.deployment.metadata.namespace

    @property
    def all_sets(self) -> list[MachineSet]:
        """Oldest first, the one for the present template last."""
        return [*self.sets.old, *([self.sets.new] if self.sets.new is not None else [])]


def controlled_by(deployment: MachineDeployment) -> OwnerReference:
    return OwnerReference(
        api_version=MACHINE_DEPLOYMENT.api_version,
        kind=MACHINE_DEPLOYMENT.name,
        name=deployment.metadata.name,
        uid=deployment.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
