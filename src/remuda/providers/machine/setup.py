"""Setup of the generic machine provider: its controllers, CRDs and built-in drivers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from remuda.kube.client import Client
from remuda.kube.errors import AlreadyExists
from remuda.providers.machine import catalogue, machine
from remuda.providers.machine import definitions as kinds
from remuda.providers.machine.catalogue import LOCAL
from remuda.providers.machine.nodedriver import CONTROLLER, Find, NodeDrivers
from remuda.providers.machine.scope import MachineContext
from remuda.providers.machine.secret_guard import SecretGuard
from remuda.providers.shared import drivers
from remuda.providers.shared.drivers import NoSuchDriver
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.types.machine import NODE_DRIVER
from remuda.runtime.manager import Manager
from remuda.runtime.steps import step

REGISTER = step("nodedriver.register", "creates the NodeDriver of an installed driver")

CONTROLLERS = (CONTROLLER,)  # those of <Driver>Machines come and go with their drivers

log = logging.getLogger(__name__)


def definitions() -> list[dict[str, Any]]:
    """Return the CRDs to install before the manager starts; the drivers' kinds are installed later, automatically."""
    return [kinds.node_driver()]


def add(manager: Manager, settings: MachineSettings, find: Find = catalogue.find) -> NodeDrivers:
    """Add the controllers to a manager that has not started yet."""
    world = MachineContext(manager, settings)
    machine.index(world)
    SecretGuard(world)
    return NodeDrivers(world, find)


async def register_builtin(client: Client) -> None:
    """Create an active NodeDriver for each usable built-in driver that has none. Drivers that a user has changed or
    disabled stay so.
    """
    for name, doc in await asyncio.to_thread(_usable):
        obj = {
            "apiVersion": NODE_DRIVER.api_version,
            "kind": NODE_DRIVER.name,
            "metadata": {"name": name},
            "spec": {"displayName": name, "description": doc, "url": LOCAL, "builtin": True, "active": True},
        }
        with contextlib.suppress(AlreadyExists):
            async with REGISTER:
                await client.create(NODE_DRIVER.target, "", obj)


def _usable() -> list[tuple[str, str]]:
    found = []
    for name in drivers.names():
        try:
            found.append((name, drivers.find(name).doc))
        except NoSuchDriver as error:
            log.info("%s", error)
    return found
