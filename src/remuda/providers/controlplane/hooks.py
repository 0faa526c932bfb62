"""The hook that lets the end of a Machine wait for us: an annotation that Cluster API honours before it stops a server.

Every Machine that is or may become a member of etcd has it. Where no control plane is left to decide, nobody would ever
take it away again, so then it goes at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from remuda.capi.types import MACHINE, Machine
from remuda.kube.client import Client
from remuda.providers.controlplane.hosts import HOOK, HOOK_OWNER
from remuda.runtime.draft import Draft, save
from remuda.runtime.informer import Informer
from remuda.runtime.steps import Step, step

HOLD = step("rkecontrolplane.hold-machine", "lets the deletion of a Machine wait until its member of etcd has left")
RELEASE = step("rkecontrolplane.release-machine", "lets the deletion of a Machine go on")


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
