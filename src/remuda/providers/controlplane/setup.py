"""The control plane provider as one thing to be added to a manager."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from remuda.providers.bootstrap.site import Site
from remuda.providers.controlplane import controller, drainer
from remuda.providers.controlplane.controller import Decide, RKEControlPlaneController
from remuda.providers.controlplane.drainer import Drainer, DrainSettings
from remuda.providers.controlplane.installing import Lookup, nothing
from remuda.providers.controlplane.planner.decide import decide
from remuda.runtime.manager import Manager
from remuda.runtime.remote import RemoteClusters

CONTROLLERS = (controller.NAME, drainer.NAME)


class ControlPlaneSettings(msgspec.Struct, frozen=True, kw_only=True):
    artefacts: Lookup = nothing  # which files the manager has of a version
    drain: DrainSettings = DrainSettings()
    proxied: bool = False  # <cluster>-kubeconfig leads through a proxy, and somebody else keeps it
    tunnels_at: Site | None = None  # where nodes open tunnels to; None: nowhere


def add(
    manager: Manager,
    remote: RemoteClusters,
    settings: ControlPlaneSettings | None = None,
    *,
    only: Collection[str] = CONTROLLERS,
    decide: Decide = decide,
) -> None:
    """To a manager that has not started yet. `remote`: the connections to workload clusters, the core's where it runs
    in the same process."""
    settings = settings or ControlPlaneSettings()
    if controller.NAME in only:
        RKEControlPlaneController(
            manager,
            remote,
            settings.artefacts,
            decide,
            proxied=settings.proxied,
            tunnels_at=settings.tunnels_at,
        )
    if drainer.NAME in only:
        Drainer(manager, remote, settings.drain)
