"""Add the control plane provider to a manager: its controllers and their settings."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from remuda.providers.controlplane import controller, drainer
from remuda.providers.controlplane.controller import Decide, RKEControlPlaneController
from remuda.providers.controlplane.drainer import Drainer, DrainSettings
from remuda.providers.controlplane.gather import Silence
from remuda.providers.controlplane.installation import Lookup, Pack, nothing
from remuda.providers.controlplane.planner.decide import decide
from remuda.providers.shared.manager_address import Site
from remuda.runtime.manager import Manager
from remuda.runtime.remote import RemoteClusters

CONTROLLERS = (controller.NAME, drainer.NAME)


class ControlPlaneSettings(msgspec.Struct, frozen=True, kw_only=True):
    artefacts: Lookup = nothing  # which files the manager has of a version
    pack: Pack | None = None  # creates the files of a version that has no other source; None: not supported
    drain: DrainSettings = DrainSettings()
    proxied: bool = False  # <cluster>-kubeconfig uses a proxy, and another controller writes it
    tunnels_at: Site | None = None  # where nodes open tunnels to; None: nowhere
    silence: Silence | None = None  # since when hosts have been silent; None: unknown


def add(
    manager: Manager,
    remote: RemoteClusters,
    settings: ControlPlaneSettings | None = None,
    *,
    only: Collection[str] = CONTROLLERS,
    decide: Decide = decide,
) -> None:
    """Add the controllers to a manager that has not started yet. `remote`: the connections to workload clusters, the
    core's if it runs in the same process."""
    settings = settings or ControlPlaneSettings()
    if controller.NAME in only:
        RKEControlPlaneController(
            manager,
            remote,
            settings.artefacts,
            decide,
            pack=settings.pack,
            proxied=settings.proxied,
            tunnels_at=settings.tunnels_at,
            silence=settings.silence,
        )
    if drainer.NAME in only:
        Drainer(manager, remote, settings.drain)
