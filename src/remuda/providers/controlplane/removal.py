"""The end of an RKEControlPlane: it stays until the Machines it looked after are gone.

Machines of pools go with their MachineDeployments, which the Cluster deletes first; servers that registered themselves
belong to nobody else and are deleted here. Nothing is drained and no member of etcd is asked to leave: all of it goes.
"""

from __future__ import annotations

from collections.abc import Sequence

from remuda.capi.types import MACHINE, Machine
from remuda.kube import conditions
from remuda.kube.client import Client
from remuda.kube.conditions import condition
from remuda.kube.errors import ignore_not_found
from remuda.providers.shared.types.controlplane import RKEControlPlane
from remuda.runtime.draft import Draft, save
from remuda.runtime.outcome import DONE, Blocked, Outcome
from remuda.runtime.steps import step

DELETE_MACHINE = step("rkecontrolplane.delete-machine", "asks for the deletion of a server whose control plane goes")
LET_GO = step("rkecontrolplane.let-go", "removes the finalizer of a control plane whose Machines are gone")

FINALIZER = "rke.cattle.io/rkecontrolplane"
_MOST_NAMES = 5


async def remove(client: Client, draft: Draft, plane: RKEControlPlane, left: Sequence[Machine]) -> Outcome:
    for machine in left:
        if not machine.metadata.deleting and machine.metadata.controller is None:
            await _delete(client, machine)
    if not left:
        if draft.remove_finalizer(FINALIZER):
            await save(client, draft, LET_GO)
        return DONE
    message = f"Waiting for Machines to be deleted: {_named(left)}"
    staying = [machine for machine in left if not machine.metadata.deleting and machine.metadata.controller is not None]
    if staying:
        message += f"; {_named(staying)} belong to MachineDeployments, which go with the Cluster"
    news = [condition("Deleting", True, "WaitingForMachineDeletion", message)]
    conditions.put(draft.status, news, generation=plane.metadata.generation)
    await save(client, draft, LET_GO)
    return Blocked("WaitingForMachineDeletion", f"Machine {left[0].key}", message)


async def _delete(client: Client, machine: Machine) -> None:
    async with DELETE_MACHINE:
        with ignore_not_found():
            await client.delete(MACHINE.target, *machine.key, uid=machine.metadata.uid)


def _named(machines: Sequence[Machine]) -> str:
    shown = ", ".join(machine.metadata.name for machine in machines[:_MOST_NAMES])
    return shown if len(machines) <= _MOST_NAMES else f"{shown} and {len(machines) - _MOST_NAMES} more"
