"""One reconcile of one MachineSet: what it has found out so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remuda.capi import names
from remuda.capi.types import Cluster, Machine, MachineDeployment, MachineSet
from remuda.runtime.draft import Draft
from remuda.runtime.outcome import Outcome

Json = dict[str, Any]


@dataclass(kw_only=True)
class MachineSetScope:
    draft: Draft
    machine_set: MachineSet  # as read
    cluster: Cluster | None
    deployment: MachineDeployment | None  # the one that controls the set
    machines: list[Machine]  # those the set controls, by name
    obstacles: list[str] = field(default_factory=list)  # why no Machines are created, until the user acts
    failed_checks: list[str] = field(default_factory=list)  # the same, until the control plane is stable
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


def machine_labels(machine_set: MachineSet) -> dict[str, str]:
    """Return the labels of every Machine of the set, and of every object created for one."""
    metadata, spec = machine_set.metadata, machine_set.spec
    labels = {
        **spec.template.metadata.labels,
        names.CLUSTER_NAME: names.label_value(spec.cluster_name),
        names.SET_NAME: names.label_value(metadata.name),
    }
    if names.DEPLOYMENT_NAME in metadata.labels:
        labels[names.DEPLOYMENT_NAME] = metadata.labels[names.DEPLOYMENT_NAME]
    return labels
