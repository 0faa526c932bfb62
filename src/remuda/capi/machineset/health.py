"""Health of a Machine from the MachineSet's point of view: is it there to stay, healthy, available?

The counters in a MachineSet's status and the choice of Machines to delete use the same answers. Rolling updates rely on
that: a Machine counted as available is one that is spared.
"""

from __future__ import annotations

from remuda.capi.types import Machine
from remuda.kube import conditions


def is_healthy(machine: Machine) -> bool:
    """Has become a Node, and neither the Node nor a health check complains."""
    found = machine.status.conditions
    return (
        machine.status.node_ref is not None
        and not conditions.is_false(found, "NodeHealthy")
        and not conditions.is_false(found, "HealthCheckSucceeded")
    )


def is_ready(machine: Machine) -> bool:
    return not machine.metadata.deleting and conditions.is_true(machine.status.conditions, "Ready")


def is_available(machine: Machine) -> bool:
    """Serves, and is to go on serving: one being deleted is given up, whatever its last conditions say."""
    return (
        not machine.metadata.deleting
        and conditions.is_true(machine.status.conditions, "Available")
        and not conditions.is_false(machine.status.conditions, "HealthCheckSucceeded")
    )


def is_up_to_date(machine: Machine) -> bool:
    return conditions.is_true(machine.status.conditions, "UpToDate")
