"""The generic machine provider as one thing to be added to a manager."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.providers.machine import catalogue, drivers, machine
from remuda.providers.machine import definitions as kinds
from remuda.providers.machine.catalogue import LOCAL
from remuda.providers.machine.drivers import NoSuchDriver
from remuda.providers.machine.nodedriver import CONTROLLER, Find, NodeDrivers
from remuda.providers.machine.scope import World
from remuda.providers.machine.settings import MachineSettings
from remuda.providers.machine.types import NODE_DRIVER
from remuda.runtime.manager import Manager
from remuda.runtime.steps import step

REGISTER = step("nodedriver.register", "creates the NodeDriver of a driver at hand")

CONTROLLERS = (CONTROLLER,)  # those of <Driver>Machines come and go with their drivers

log = logging.getLogger(__name__)


def definitions() -> list[dict[str, Any]]:
    """What must be installed before the manager starts; the kinds of drivers come later, by themselves."""
    return [kinds.node_driver()]


def add(manager: Manager, settings: MachineSettings, find: Find = catalogue.find) -> NodeDrivers:
    """To a manager that has not started yet."""
    world = World(manager, settings)
    machine.index(world)
    return NodeDrivers(world, find)


async def register_builtin(client: Client) -> None:
    """A NodeDriver, active, for each driver at hand that can be used, where there is none yet: what somebody has
    changed or switched off stays so."""
    for name, doc in await asyncio.to_thread(_usable):
        obj = {
            "apiVersion": NODE_DRIVER.api_version,
            "kind": NODE_DRIVER.name,
            "metadata": {"name": name},
            "spec": {"displayName": name, "description": doc, "url": LOCAL, "builtin": True, "active": True},
        }
        try:
            async with REGISTER:
                await client.create(NODE_DRIVER.target, "", obj)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise


def _usable() -> list[tuple[str, str]]:
    found = []
    for name in drivers.names():
        try:
            found.append((name, drivers.find(name).doc))
        except NoSuchDriver as error:
            log.info("%s", error)
    return found
