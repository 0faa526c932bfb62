"""Members of a MachineSet: the Machines it controls, and matching Machines without a controller, which it adopts.

A Machine is counted because the set controls it, never because of its labels alone: the set restores labels that
a client removes, and never creates another Machine because of them.
"""

from __future__ import annotations

from remuda.capi import selectors
from remuda.capi.cluster_index import controlled_by
from remuda.capi.machineset.scope import Scope, machine_labels
from remuda.capi.pools import BY_CONTROLLER, PoolDependencies, orphanage
from remuda.capi.types import MACHINE, MACHINE_SET, Machine, MachineSet
from remuda.kube.selectors import LabelSelector
from remuda.runtime.draft import Draft, save
from remuda.runtime.steps import step

ADOPT = step("machineset.adopt", "makes the MachineSet the controller of a matching Machine that has none")


def of(world: PoolDependencies, machine_set: MachineSet) -> list[Machine]:
    return world.machines.select(BY_CONTROLLER, machine_set.metadata.uid)


def mismatch(machine_set: MachineSet) -> str:
    """Return the reason why the set must not create Machines, or an empty string: it would not recognise them, and
    would create more for ever."""
    selector = selectors.selective(machine_set.spec.selector)
    if selector is None:
        return "spec.selector is invalid, or selects all Machines or none"
    if not selector.matches(machine_labels(machine_set)):
        return f"spec.selector ({selector}) does not match the labels of spec.template"
    return ""


async def adopt(world: PoolDependencies, scope: Scope) -> None:
    selector = selectors.selective(scope.machine_set.spec.selector)
    if selector is None:
        return
    for machine in world.machines.select(BY_CONTROLLER, orphanage(scope.namespace)):
        if _is_ours(machine, scope.machine_set, selector):
            await _adopt(world, scope, machine)


def _is_ours(machine: Machine, machine_set: MachineSet, selector: LabelSelector) -> bool:
    return (
        not machine.metadata.deleting
        and machine.spec.cluster_name == machine_set.spec.cluster_name
        and not machine.is_control_plane
        and selector.matches(machine.metadata.labels)
    )


async def _adopt(world: PoolDependencies, scope: Scope, machine: Machine) -> None:
    value = world.machines.raw(*machine.key)
    if value is None:
        return
    draft = Draft(MACHINE.target, value)
    draft.set_owner(controlled_by(MACHINE_SET, scope.machine_set.metadata))
    scope.machines.append(MACHINE.decode(await save(world.client, draft, ADOPT)))
    world.events.normal(scope.machine_set, "SuccessfulAdopt", f"Adopted Machine {machine.metadata.name}")
