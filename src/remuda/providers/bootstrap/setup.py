"""Add the bootstrap provider to a manager: its controllers, and the registration of hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import msgspec

from remuda.providers.bootstrap import clusters, controller, custom_machine, script, tokens
from remuda.providers.bootstrap.clusters import ClusterRegistrationController
from remuda.providers.bootstrap.controller import RKEBootstrapController
from remuda.providers.bootstrap.custom_machine import CustomMachineController
from remuda.providers.bootstrap.registration import RegistrationService
from remuda.providers.shared.manager_address import Site
from remuda.runtime.manager import Manager

CONTROLLERS = (controller.NAME, custom_machine.NAME, clusters.NAME)


class BootstrapSettings(msgspec.Struct, frozen=True, kw_only=True):
    token_ttl_seconds: float = tokens.DEFAULT_TTL_SECONDS  # how long a server may take from its order to its first call


def add(
    manager: Manager,
    site: Site,
    *,
    settings: BootstrapSettings | None = None,
    only: Collection[str] = CONTROLLERS,
) -> RegistrationService:
    """Adds the controllers to a manager that has not started yet. The Registration works whether or not it leads."""
    settings = settings or BootstrapSettings()
    if controller.NAME in only:
        RKEBootstrapController(manager, site, settings.token_ttl_seconds)

        async def prepare() -> None:
            await asyncio.to_thread(script.public, site)  # builds the agent, which takes a moment the first time

        manager.at_start(prepare)
    if custom_machine.NAME in only:
        CustomMachineController(manager)
    if clusters.NAME in only:
        ClusterRegistrationController(manager, site)
    return RegistrationService(manager.client, manager.events, site)
