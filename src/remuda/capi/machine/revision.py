"""Comparison of a Machine with its MachineDeployment: its revision, and the differences."""

from __future__ import annotations

from remuda.capi.revisions import essence, revision, rollout_due
from remuda.capi.types import MachineDeployment, MachineSet
from remuda.kube import clock


def is_outdated(machine_set: MachineSet, deployment: MachineDeployment) -> bool:
    """Return whether the MachineDeployment has a later revision than this Machine's MachineSet."""
    return 0 < revision(machine_set.metadata.annotations) < revision(deployment.metadata.annotations)


def differences(machine_set: MachineSet, deployment: MachineDeployment, now: float) -> list[str]:
    """Return the differences between this MachineSet's Machines and the MachineDeployment's template, one sentence
    each."""
    mine, wanted = essence(machine_set.spec.template), essence(deployment.spec.template)
    found = []
    if mine.version != wanted.version:
        found.append(f"Version {mine.version or 'not set'}, {wanted.version or 'none'} required")
    if mine.failure_domain != wanted.failure_domain:
        required = wanted.failure_domain or "none"
        found.append(f"Failure domain {mine.failure_domain or 'not set'}, {required} required")
    if mine.bootstrap != wanted.bootstrap:
        found.append("Bootstrap template differs from that of the MachineDeployment")
    if mine.infrastructure != wanted.infrastructure:
        found.append(f"Infrastructure was created from {mine.infrastructure}, {wanted.infrastructure} required")
    due = rollout_due(deployment, now)
    created = machine_set.metadata.creation_timestamp
    if due is not None and (created is None or clock.parse(created) < due):
        found.append(f"MachineDeployment spec.rollout.after ({clock.rfc3339(due)}) has passed")
    return found
