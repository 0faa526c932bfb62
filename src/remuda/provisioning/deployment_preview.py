"""Preview of a change to MachineDeployments without a declared Cluster: machines that are deleted or replaced. Pure.

Users of Cluster API write these objects themselves. Changes in place are not part of this preview.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from remuda.capi.machineset.members import choose_victims
from remuda.capi.revisions import essence
from remuda.capi.types import Machine, MachineDeployment
from remuda.providers.controlplane import hosts
from remuda.provisioning.preview import EtcdMembers, Preview, Step


class DeploymentChange(NamedTuple):
    old: MachineDeployment
    new: MachineDeployment
    machines: Sequence[Machine]


def preview(cluster: str, changes: Sequence[DeploymentChange]) -> Preview:
    """`cluster`: namespace and name of the Cluster of Cluster API."""
    members = [change for change in changes if hosts.roles(change.new.spec.template.metadata.labels).etcd]
    return Preview(
        cluster=cluster,
        steps=[step for change in changes for step in _steps(change)],
        etcd=EtcdMembers(
            before=sum(_replicas(change.old) for change in members),
            after=sum(_replicas(change.new) for change in members),
        ),
    )


def _steps(change: DeploymentChange) -> list[Step]:
    old, new = change.old, change.new
    pool, present = new.metadata.name, [one for one in change.machines if not one.metadata.deleting]
    if essence(old.spec.template) != essence(new.spec.template):
        why = "its MachineDeployment has another template"
        return [Step(pool=pool, machine=one.metadata.name, action="replace", why=why) for one in present]
    count = _replicas(new)
    leaving = choose_victims(present, len(present) - count, new.spec.deletion.order or "Random")
    why = f"replicas is {count}"
    return [Step(pool=pool, machine=one.metadata.name, action="delete", why=why) for one in leaving]


def _replicas(deployment: MachineDeployment) -> int:
    return 1 if deployment.spec.replicas is None else deployment.spec.replicas
