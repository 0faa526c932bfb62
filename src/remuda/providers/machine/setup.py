"""The generic machine provider as one thing to be added to a manager."""

from __future__ import annotations

from remuda.kube.client import Client
from remuda.providers.machine.settings import MachineSettings
from remuda.runtime.manager import Manager

NODE_DRIVER_CONTROLLER = "nodedriver"
CONTROLLERS = (NODE_DRIVER_CONTROLLER,)  # those of <Driver>Machines come and go with their drivers


def add(manager: Manager, settings: MachineSettings) -> None:
    """To a manager that has not started yet."""


async def register_builtin(client: Client) -> None:
    """A NodeDriver for each driver at hand, where there is none yet."""
