"""Owner references: a Machine owns its provider objects, a Cluster owns the Machines that no other object created.

Provider objects usually are created with the Machine as their controller, and nothing is left to do. If they were
created first (owned by a MachineSet or a control plane for the time being), the Machine takes them over here. It never
takes an object that another Machine controls: with two Machines on one server, each would delete it under the other.
"""

from __future__ import annotations

from remuda.capi import names
from remuda.capi.cluster_index import controlled_by
from remuda.capi.contract import ProviderObject
from remuda.capi.machine.scope import MachineDependencies, MachineScope
from remuda.capi.types import MACHINE, Machine
from remuda.kube.objects import OwnerReference
from remuda.runtime.draft import save
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import step

TAKE_OVER = step("machine.take-over", "makes the Machine the controller of a provider's object, and labels it")

_MADE_BY_OTHERS = (names.SET_NAME, names.POOL_NAME, names.CONTROL_PLANE_NAME)


def adopt(scope: MachineScope) -> None:
    """Label the Machine with its Cluster, and make the Cluster its owner if it has no other."""
    draft, machine = scope.draft, scope.machine
    draft.set_label(names.CLUSTER_NAME, names.label_value(machine.spec.cluster_name))
    stands_alone = machine.metadata.controller is None and not any(
        label in machine.metadata.labels for label in _MADE_BY_OTHERS
    )
    if stands_alone:
        metadata = scope.cluster.metadata
        draft.set_owner(
            OwnerReference(
                api_version=names.API_VERSION,
                kind="Cluster",
                name=metadata.name,
                uid=metadata.uid,
            )
        )


async def take_over(world: MachineDependencies, scope: MachineScope, obj: ProviderObject) -> None:
    """Make the Machine the controller of the object. Raises Retryable if another object controls it."""
    owner = controlled_by(MACHINE, scope.machine.metadata)
    draft = obj.draft()
    present = obj.metadata.controller
    if present is not None and present.uid != owner.uid:
        if not _was_mine(present, scope.machine):
            raise Retryable(f"{obj} is controlled by {present.kind} {present.name}: refer to another object")
        draft.remove_owner(present.uid)
    for other in obj.metadata.owner_references:
        if not other.controller and _is_temporary(other, scope):
            draft.remove_owner(other.uid)
    draft.set_owner(owner)
    draft.set_label(names.CLUSTER_NAME, names.label_value(scope.machine.spec.cluster_name))
    await save(world.client, draft, TAKE_OVER)


def belongs_to(obj: ProviderObject, machine: Machine) -> bool:
    """Return whether the object belongs to the Machine: no other controller owns it. An object without a controller
    belongs to the Machine that refers to it."""
    owner = obj.metadata.controller
    return owner is None or owner.uid == machine.metadata.uid or _was_mine(owner, machine)


def _was_mine(owner: OwnerReference, machine: Machine) -> bool:
    """Return whether the owner is this Machine under an earlier uid: a restore or a move gives objects new uids."""
    return (owner.kind, owner.group, owner.name) == (MACHINE.name, MACHINE.group, machine.metadata.name)


def _is_temporary(owner: OwnerReference, scope: MachineScope) -> bool:
    """Return whether the owner is the MachineSet or control plane that created the object before the Machine."""
    if (owner.kind, owner.group) == ("MachineSet", names.GROUP):
        return True
    control_plane = scope.cluster.spec.control_plane_ref
    return control_plane is not None and (owner.kind, owner.group) == (control_plane.kind, control_plane.api_group)
