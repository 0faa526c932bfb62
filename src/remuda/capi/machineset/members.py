"""Members of a MachineSet: the Machines it controls or adopts, their health, and the order in which they are deleted.

A Machine is counted because the set controls it, never because of its labels alone: the set restores labels that
a client removes, and never creates another Machine because of them.

The counters in a MachineSet's status and the choice of Machines to delete use the same answers about health. Rolling
updates rely on that: a Machine counted as available is one that is spared. The choice is a pure function of the
Machines, and the deletion itself is its record: a Machine being deleted is always chosen first, so a retry, after
a crash or by a second reconcile, never selects another one. Machines that are not available are deleted before
available ones (`machinedeployment.rollout`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from remuda.capi import names
from remuda.capi.cluster_index import controlled_by
from remuda.capi.machineset.scope import MachineSetScope, machine_labels
from remuda.capi.pools import BY_CONTROLLER, PoolDependencies, uncontrolled_key
from remuda.capi.types import MACHINE, MACHINE_SET, Machine, MachineSet
from remuda.capi.types.shared import selective_selector
from remuda.kube import clock, conditions
from remuda.kube.selectors import LabelSelector
from remuda.runtime.draft import Draft, save
from remuda.runtime.steps import step

ADOPT = step("machineset.adopt", "makes the MachineSet the controller of a matching Machine that has none")


def of(world: PoolDependencies, machine_set: MachineSet) -> list[Machine]:
    return world.machines.select(BY_CONTROLLER, machine_set.metadata.uid)


def mismatch(machine_set: MachineSet) -> str:
    """Return the reason why the set must not create Machines, or an empty string: it would not recognise them, and
    would create more for ever."""
    selector = selective_selector(machine_set.spec.selector)
    if selector is None:
        return "spec.selector is invalid, or selects all Machines or none"
    if not selector.matches(machine_labels(machine_set)):
        return f"spec.selector ({selector}) does not match the labels of spec.template"
    return ""


async def adopt(world: PoolDependencies, scope: MachineSetScope) -> None:
    selector = selective_selector(scope.machine_set.spec.selector)
    if selector is None:
        return
    for machine in world.machines.select(BY_CONTROLLER, uncontrolled_key(scope.namespace)):
        if _is_ours(machine, scope.machine_set, selector):
            await _adopt(world, scope, machine)


def _is_ours(machine: Machine, machine_set: MachineSet, selector: LabelSelector) -> bool:
    return (
        not machine.metadata.deleting
        and machine.spec.cluster_name == machine_set.spec.cluster_name
        # A control plane provider manages these Machines, even while they have no controller.
        and not machine.is_control_plane
        and selector.matches(machine.metadata.labels)
    )


async def _adopt(world: PoolDependencies, scope: MachineSetScope, machine: Machine) -> None:
    value = world.machines.raw(*machine.key)
    if value is None:
        return
    draft = Draft(MACHINE.target, value)
    draft.set_owner(controlled_by(MACHINE_SET, scope.machine_set.metadata))
    scope.machines.append(MACHINE.decode(await save(world.client, draft, ADOPT)))
    world.events.normal(scope.machine_set, "SuccessfulAdopt", f"Adopted Machine {machine.metadata.name}")


# ---- health ------------------------------------------------------------------------------------------------------


def is_healthy(machine: Machine) -> bool:
    """Return whether the Machine has a Node, and neither the Node nor a health check reports a problem."""
    found = machine.status.conditions
    return (
        machine.status.node_ref is not None
        and not conditions.is_false(found, "NodeHealthy")
        and not conditions.is_false(found, "HealthCheckSucceeded")
    )


def is_ready(machine: Machine) -> bool:
    return not machine.metadata.deleting and conditions.is_true(machine.status.conditions, "Ready")


def is_available(machine: Machine) -> bool:
    """Return whether the Machine serves and stays: one that is being deleted does not count, whatever its conditions
    say."""
    return (
        not machine.metadata.deleting
        and conditions.is_true(machine.status.conditions, "Available")
        and not conditions.is_false(machine.status.conditions, "HealthCheckSucceeded")
    )


def is_up_to_date(machine: Machine) -> bool:
    return conditions.is_true(machine.status.conditions, "UpToDate")


# ---- Machines to delete ------------------------------------------------------------------------------------------


class Rank(IntEnum):
    """Order of deletion of a Machine, the strongest reason first."""

    DELETING = 0
    MARKED = 1  # the user's or an autoscaler's choice
    UPDATING = 2
    UNHEALTHY = 3
    UNAVAILABLE = 4
    GOOD = 5


def rank(machine: Machine) -> Rank:
    if machine.metadata.deleting:
        return Rank.DELETING
    if names.DELETE_MACHINE in machine.metadata.annotations:
        return Rank.MARKED
    if names.UPDATE_IN_PROGRESS in machine.metadata.annotations:
        return Rank.UPDATING
    if not is_healthy(machine):
        return Rank.UNHEALTHY
    return Rank.GOOD if is_available(machine) else Rank.UNAVAILABLE


def choose_victims(machines: Sequence[Machine], count: int, order: str) -> list[Machine]:
    """The first `count` to go. `order` (Oldest, Newest, Random) decides within a rank, the name where that does not."""
    sign = {"Oldest": 1, "Newest": -1}.get(order, 0)

    def place(machine: Machine) -> tuple[Rank, float, str]:
        return rank(machine), sign * _created(machine), machine.metadata.name

    return sorted(machines, key=place)[: max(count, 0)]


def _created(machine: Machine) -> float:
    created = machine.metadata.creation_timestamp
    return clock.parse(created) if created else 0.0
