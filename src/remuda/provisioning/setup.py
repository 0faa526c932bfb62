"""Setup of declared clusters: their controllers, CRDs and namespaces."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

from remuda.capi.external import Externals
from remuda.kube.client import Client
from remuda.kube.core import NAMESPACES
from remuda.kube.errors import AlreadyExists, ignore_not_found
from remuda.provisioning import controller, management
from remuda.provisioning import definitions as kinds
from remuda.provisioning.controller import ProvisioningController
from remuda.provisioning.management import Management, ManagementController
from remuda.runtime.manager import Manager
from remuda.runtime.steps import step

CONTROLLERS = (controller.NAME, management.NAME)
WORKSPACES = ("fleet-default", "cattle-global-data")  # where manifests of Rancher put clusters and credentials

MAKE_WORKSPACE = step("provisioningcluster.create-workspace", "creates a namespace that Rancher manifests expect")


def definitions() -> list[dict[str, Any]]:
    return kinds.definitions()


def add(manager: Manager, *, only: Collection[str] = CONTROLLERS) -> None:
    """Add the controllers to a manager that has not started yet."""
    if not set(only) & set(CONTROLLERS):
        return
    shared = Management(manager)
    if controller.NAME in only:
        ProvisioningController(manager, Externals(manager.caches, manager.client), shared)
    if management.NAME in only:
        ManagementController(manager, shared)


async def make_workspaces(client: Client) -> None:
    """Create the workspaces' namespaces that do not exist."""
    for name in WORKSPACES:
        with ignore_not_found():
            await client.get(NAMESPACES, "", name)
            continue
        with contextlib.suppress(AlreadyExists):
            async with MAKE_WORKSPACE:
                await client.create(
                    NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                )
