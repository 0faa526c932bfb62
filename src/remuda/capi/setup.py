"""Puts the core controllers together: what they share, and which of them run."""

from __future__ import annotations

from collections.abc import Collection

from remuda.capi.cluster.controller import ClusterController
from remuda.capi.external import Externals
from remuda.capi.machine import controller as machine
from remuda.capi.machine.scope import MachineOptions
from remuda.capi.machine.workload import NODE
from remuda.capi.machinedeployment.controller import MachineDeploymentController
from remuda.capi.machinehealthcheck.controller import MachineHealthCheckController
from remuda.capi.machineset.controller import MachineSetController
from remuda.capi.remote import dialer
from remuda.capi.types import MACHINE
from remuda.runtime.manager import Manager
from remuda.runtime.remote import Dial, RemoteClusters

CONTROLLERS = ("cluster", "machine", "machineset", "machinedeployment", "machinehealthcheck")


def add_controllers(
    manager: Manager,
    *,
    only: Collection[str] = CONTROLLERS,
    dial: Dial | None = None,
    options: MachineOptions | None = None,
) -> RemoteClusters:
    """Adds them to a manager that has not started yet. `dial` reaches workload clusters; by default, with the
    kubeconfig each has in a Secret."""
    externals = Externals(manager.caches, manager.client)
    remote = RemoteClusters(dial or dialer(manager.client), nodes=NODE)
    manager.at_end(remote.close)
    manager.ledger.follow(MACHINE)
    if "cluster" in only:
        ClusterController(manager, externals, remote)
    if "machine" in only:
        machine.add(manager, externals, remote, options)
    if "machineset" in only:
        MachineSetController(manager, externals)
    if "machinedeployment" in only:
        MachineDeploymentController(manager, externals)
    if "machinehealthcheck" in only:
        MachineHealthCheckController(manager, remote)
    return remote
