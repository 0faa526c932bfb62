"""Setup of the providers: their settings, CRDs, webhooks and controllers.

The bootstrap controllers and the server for hosts share one Site. If this process runs the Jobs of machines itself, the
job runner is one more controller; otherwise the cluster runs them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from remuda.capi.inventory import ProviderEntry
from remuda.capi.machine.workload import NODE
from remuda.capi.remote import dialer
from remuda.jobs import runner
from remuda.jobs.runner import JobRunner
from remuda.kube.admission import AdmissionRegistration
from remuda.kube.client import Client
from remuda.providers import guards
from remuda.providers.bootstrap import definitions as bootstrap_definitions
from remuda.providers.bootstrap import guard
from remuda.providers.bootstrap import setup as bootstrap
from remuda.providers.bootstrap.registration import RegistrationService
from remuda.providers.controlplane import admission as control_plane_admission
from remuda.providers.controlplane import definitions as control_plane_definitions
from remuda.providers.controlplane import setup as control_plane
from remuda.providers.controlplane.artefacts import Artefacts
from remuda.providers.controlplane.artefacts.nano_bundles import Packing
from remuda.providers.controlplane.gather import Silence
from remuda.providers.infrastructure import controller as infrastructure
from remuda.providers.machine import admission as machine_admission
from remuda.providers.machine import setup as machine
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.machine import NODE_DRIVER
from remuda.runtime.manager import Manager
from remuda.runtime.remote import Dial, RemoteClusters
from remuda.runtime.webhooks import Webhook, join

NAME = "remuda"  # of each of them, for clusterctl
CONTROLLERS = (
    infrastructure.NAME,
    *bootstrap.CONTROLLERS,
    *control_plane.CONTROLLERS,
    *machine.CONTROLLERS,
    runner.CONTROLLER,
)

ADMISSION: tuple[AdmissionRegistration, ...] = (
    *guard.FUNCTIONS,
    *machine_admission.FUNCTIONS,
    *control_plane_admission.FUNCTIONS,
    *guards.registrations(guards.GUARDED),
)


def webhooks() -> list[Webhook]:
    """Return the webhooks that do the same on an API server elsewhere."""
    return [
        *guard.WEBHOOKS,
        *join((NODE_DRIVER,), machine_admission.FUNCTIONS),
        *join((RKE_CONTROL_PLANE,), control_plane_admission.FUNCTIONS),
        *guards.webhooks(guards.GUARDED),
    ]


def entries(version: str) -> tuple[ProviderEntry, ...]:
    """Return the providers under the names that clusterctl knows."""
    return (
        ProviderEntry("InfrastructureProvider", NAME, version),
        ProviderEntry("BootstrapProvider", NAME, version),
        ProviderEntry("ControlPlaneProvider", NAME, version),
    )


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    site: Site
    bootstrap: bootstrap.BootstrapSettings = bootstrap.BootstrapSettings()
    machine: MachineSettings = MachineSettings()
    jobs: runner.JobRunnerSettings | None = None  # None: not run here
    artefacts: Artefacts | None = None  # None: none are served
    proxied: bool = False  # clusters are reached through a proxy of this process
    tunnels: bool = False  # whether this process accepts tunnels of nodes
    silence: Silence | None = None  # since when hosts have been silent, if known


class Providers(msgspec.Struct, frozen=True):
    """Parts of the providers that other components need: the server for hosts, and the server for logs."""

    registration: RegistrationService | None
    job_runner: JobRunner | None


def definitions() -> list[dict[str, Any]]:
    """Return the CRDs that are always installed; those of drivers are added and removed with their drivers."""
    return [
        *bootstrap_definitions.definitions(),
        *control_plane_definitions.definitions(),
        *machine.definitions(),
    ]


def add(
    manager: Manager,
    settings: ProviderSettings,
    *,
    only: Collection[str] = CONTROLLERS,
    remote: RemoteClusters | None = None,
) -> Providers:
    """To a manager that has not started yet. `remote`: the core's connections to workload clusters, where it runs in
    this process."""
    if infrastructure.NAME in only:
        infrastructure.add(manager, _machine_settings(settings))
    registration = None
    if set(only) & set(bootstrap.CONTROLLERS):
        registration = bootstrap.add(manager, settings.site, settings=settings.bootstrap, only=only)
    if set(only) & set(control_plane.CONTROLLERS):
        shared = remote if remote is not None else own_remote(manager)
        control_plane.add(manager, shared, _control_plane_settings(settings), only=only)
    if set(only) & set(machine.CONTROLLERS):
        machine.add(manager, _machine_settings(settings))
    job_runner = None
    if settings.jobs is not None and runner.CONTROLLER in only:
        job_runner = JobRunner(manager, settings.jobs)
    return Providers(registration, job_runner)


def own_remote(manager: Manager, dial: Dial | None = None) -> RemoteClusters:
    """Create the connections to workload clusters, for use where another program runs the core."""
    remote = RemoteClusters(dial or dialer(manager.client), nodes=NODE)
    manager.at_end(remote.close)
    return remote


def _control_plane_settings(settings: ProviderSettings) -> control_plane.ControlPlaneSettings:
    found = control_plane.ControlPlaneSettings(
        proxied=settings.proxied,
        tunnels_at=settings.site if settings.tunnels else None,
        silence=settings.silence,
    )
    if settings.artefacts is None:
        return found
    kept = settings.artefacts
    pack = kept.pack if isinstance(kept, Packing) else None
    return msgspec.structs.replace(found, artefacts=kept.lookup, pack=pack)


def _machine_settings(settings: ProviderSettings) -> MachineSettings:
    """Return settings under which Jobs run the driver programs that were inspected: both use the same directory."""
    found = msgspec.structs.replace(settings.machine, only_here=settings.site.only_here)
    if settings.jobs is None:
        return found
    return msgspec.structs.replace(
        found, driver_directory=str(settings.jobs.hosts / "drivers"), job_key=settings.jobs.key
    )


async def register_drivers(client: Client, only: Collection[str] = CONTROLLERS) -> None:
    """The drivers that come with this program, where they are not registered yet."""
    if set(only) & set(machine.CONTROLLERS):
        await machine.register_builtin(client)
