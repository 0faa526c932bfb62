"""Deletion of an RKEControlPlane, and the hook by which it delays the deletion of its Machines.

The control plane stays until its Machines are deleted. Machines of pools are deleted with their MachineDeployments,
which the Cluster deletes first; servers that registered themselves have no other owner and are deleted here. Nothing is
drained and no member of etcd is asked to leave, because the whole cluster is deleted.

The hook is an annotation that Cluster API honours before it stops a server. Every Machine that is or may become a
member of etcd has it. Without a control plane no controller would ever remove it, so then it is removed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remuda.capi.types import MACHINE, Machine
from remuda.kube import conditions
from remuda.kube.client import Client
from remuda.kube.conditions import condition
from remuda.kube.errors import ignore_not_found
from remuda.providers.controlplane.hosts import HOOK, HOOK_OWNER
from remuda.providers.shared.types.controlplane import RKEControlPlane
from remuda.runtime.draft import Draft, save
from remuda.runtime.informer import Informer
from remuda.runtime.outcome import DONE, Blocked, Outcome
from remuda.runtime.steps import Step, step

DELETE_MACHINE = step("rkecontrolplane.delete-machine", "deletes a Machine whose control plane is being deleted")
LET_GO = step("rkecontrolplane.let-go", "removes the finalizer of a control plane without Machines")

FINALIZER = "rke.cattle.io/rkecontrolplane"
_MOST_NAMES = 5
HOLD = step("rkecontrolplane.hold-machine", "delays the deletion of a Machine until its etcd member has left")
RELEASE = step("rkecontrolplane.release-machine", "lets the deletion of a Machine continue")


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
        message += f"; {_named(staying)} belong to MachineDeployments, which are deleted with the Cluster"
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


# ---- hold and release Machines ------------------------------------------------------------------------------------


async def hold(client: Client, machines: Informer[Machine], machine: Machine) -> None:
    await _set(client, machines, machine, HOOK_OWNER, HOLD)


async def release(client: Client, machines: Informer[Machine], machine: Machine) -> None:
    await _set(client, machines, machine, None, RELEASE)


async def release_all(client: Client, machines: Informer[Machine], held: Iterable[Machine]) -> None:
    """Release all Machines that are being deleted, for a cluster without a control plane."""
    for machine in held:
        if machine.metadata.deleting and HOOK in machine.metadata.annotations:
            await release(client, machines, machine)


async def _set(client: Client, machines: Informer[Machine], machine: Machine, value: str | None, named: Step) -> None:
    present = machines.raw(*machine.key)
    if present is None or MACHINE.decode(present).metadata.uid != machine.metadata.uid:
        return
    draft = Draft(MACHINE.target, present)
    draft.set_annotation(HOOK, value)
    await save(client, draft, named)
