"""Scope of one reconcile of a MachineDeployment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remuda.capi.revisions import Sets
from remuda.capi.types import Cluster, MachineDeployment, MachineSet
from remuda.runtime.draft import Draft
from remuda.runtime.outcome import Outcome

Json = dict[str, Any]


@dataclass(kw_only=True)
class MachineDeploymentScope:
    draft: Draft
    deployment: MachineDeployment  # as read
    cluster: Cluster | None
    sets: Sets
    now: float
    obstacles: list[str] = field(default_factory=list)  # why no Machines are created
    waiting: str = ""  # what a rollout waits for
    moved: bool = False  # this reconcile changed sets, which will report a new status
    waits: list[Outcome] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return self.deployment.metadata.namespace

    @property
    def all_sets(self) -> list[MachineSet]:
        """Return the sets, oldest first, that of the current template last."""
        return [*self.sets.old, *([self.sets.new] if self.sets.new is not None else [])]
