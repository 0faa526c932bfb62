"""Choice of the controllers that one process runs, and installation of what they need on a server before they start.

A choice consists of names and of groups of names: `core` is Cluster API's own, `providers` the other side of its
contracts, `provisioning` creates the objects of both from declared clusters, `access` opens them to users. On a cluster
whose core is upstream's, only the latter three may run: two cores would fight over every Machine.

Our providers need the kinds of a core, and any core will do. The installation of CRDs ensures that two cores never run
on one cluster: CRDs of another program are left alone, and our core does not start next to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import remuda
from remuda.access import roles
from remuda.access import setup as access
from remuda.access.quotas import NO_LIMITS
from remuda.access.types import Quota
from remuda.app.access import AccessServices
from remuda.app.process import StartRefused
from remuda.capi import admission, inventory, setup
from remuda.capi import names as capi_names
from remuda.capi.definitions import DEFINITIONS, definitions
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK, MACHINE_SET
from remuda.jobs import admission as job_admission
from remuda.jobs.marks import FILE, JobKey
from remuda.jobs.runner import CONTROLLER as JOB_RUNNER
from remuda.jobs.runner import JobRunnerSettings
from remuda.kube.admission import AdmissionRegistration
from remuda.kube.client import Client
from remuda.kube.errors import Forbidden, NotFound, StatusError
from remuda.kube.http import HttpClient
from remuda.providers import guards
from remuda.providers import setup as providers
from remuda.provisioning import admission as provisioning_admission
from remuda.provisioning import setup as provisioning
from remuda.provisioning.admission import reach
from remuda.runtime.definitions import ForeignDefinitions, NotEstablished
from remuda.runtime.definitions import install as install_definitions
from remuda.runtime.manager import Manager
from remuda.runtime.webhooks import Webhook, join

GROUPS: dict[str, tuple[str, ...]] = {
    "core": setup.CONTROLLERS,
    "providers": providers.CONTROLLERS,
    "provisioning": provisioning.CONTROLLERS,
    "access": access.CONTROLLERS,
}
EVERY = tuple(name for names in GROUPS.values() for name in names)

_CORE_KINDS = (CLUSTER, MACHINE, MACHINE_SET, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK)


def admission_functions(user_quota: Quota = NO_LIMITS) -> tuple[AdmissionRegistration, ...]:
    """Return the admission of every kind. `user_quota`: limits of users that have none of their own."""
    return (
        *admission.FUNCTIONS,
        *providers.ADMISSION,
        *provisioning_admission.FUNCTIONS,
        *access.admission_functions(user_quota),
        *guards.registrations(guards.GUARDED_CORE),
    )


def embedded_admission(user_quota: Quota = NO_LIMITS, only_here: str = "") -> tuple[AdmissionRegistration, ...]:
    """Return the same for the embedded API server, with the admission of Jobs: there the manager is known by its
    user. `only_here`: URL that hosts are given, if only hosts on this machine can use it."""
    return (*admission_functions(user_quota), *job_admission.FUNCTIONS, *reach.registrations(only_here))


ADMISSION = admission_functions()
EMBEDDED_ADMISSION = embedded_admission()


def choose(wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the controllers to run, in order; all if none are requested. Raises StartRefused."""
    if not wanted:
        return EVERY
    unknown = [name for name in wanted if name not in GROUPS and name not in EVERY]
    if unknown:
        raise StartRefused(
            f"unknown controller or group {' and '.join(unknown)}; "
            f"the groups are {', '.join(GROUPS)}, the controllers {', '.join(EVERY)}"
        )
    names = {each for name in wanted for each in GROUPS.get(name, (name,))}
    return tuple(name for name in EVERY if name in names)


def check(chosen: Sequence[str]) -> None:
    """Raise StartRefused for a combination that cannot work."""
    if has_access(chosen) and not has_providers(chosen):
        raise StartRefused("the group access needs the group providers: add providers to --controllers")


def ready_text(chosen: Sequence[str]) -> str:
    """Return the text for the ready line."""
    return f"runs {', '.join(chosen)}"


async def install(client: Client, chosen: Sequence[str]) -> None:
    """Install and update the CRDs of the chosen controllers. Raises StartRefused for CRDs that another program owns."""
    try:
        await install_definitions(client, _definitions(chosen))
        await inventory.install(client, *_entries(chosen))
    except ForeignDefinitions as error:
        advice = (
            " To run next to the other program, use --controllers=providers,provisioning,access."
            if has_core(chosen)
            else ""
        )
        raise StartRefused(f"{error}{advice}") from None
    except NotEstablished as error:
        raise StartRefused(str(error)) from None
    except StatusError as error:
        raise StartRefused(_refusal(error)) from None


def _definitions(chosen: Sequence[str]) -> list[dict[str, Any]]:
    """Return the CRDs to install. Provisioning creates the providers' objects, even if another process runs the
    providers; access reads the clusters of both."""
    found = definitions() if has_core(chosen) else []
    if has_providers(chosen) or has_provisioning(chosen) or has_access(chosen):
        found = [*found, *providers.definitions()]
    if has_provisioning(chosen) or has_access(chosen):
        found = [*found, *provisioning.definitions()]
    return [*found, *access.definitions()] if has_access(chosen) else found


def _entries(chosen: Sequence[str]) -> list[inventory.ProviderEntry]:
    core = [inventory.CORE] if has_core(chosen) else []
    return [*core, *(providers.entries(f"v{remuda.__version__}") if has_providers(chosen) else ())]


def _refusal(error: StatusError) -> str:
    if not isinstance(error, Forbidden):
        return f"cannot install the CRDs: {error}"
    return (
        f"no permission to install the CRDs: {error}. Start the manager once as a user with this permission; while the "
        "CRDs are up to date, it only reads them."
    )


def has_core(chosen: Sequence[str]) -> bool:
    return bool(set(chosen) & set(setup.CONTROLLERS))


def has_providers(chosen: Sequence[str]) -> bool:
    return bool(set(chosen) & set(providers.CONTROLLERS))


def has_provisioning(chosen: Sequence[str]) -> bool:
    return bool(set(chosen) & set(provisioning.CONTROLLERS))


def has_access(chosen: Sequence[str]) -> bool:
    return bool(set(chosen) & set(access.CONTROLLERS))


def webhooks(chosen: Sequence[str], user_quota: Quota = NO_LIMITS) -> list[Webhook]:
    """Return the admission of the kinds that these controllers manage. `user_quota`: limits of users that have none of
    their own."""
    found = join((one.kind for one in DEFINITIONS), admission.FUNCTIONS) if has_core(chosen) else []
    if has_core(chosen) and has_providers(chosen):
        found += guards.webhooks(guards.GUARDED_CORE)
    found += providers.webhooks() if has_providers(chosen) else ()
    found += job_admission.WEBHOOKS if JOB_RUNNER in chosen else ()
    found += provisioning_admission.webhooks() if has_provisioning(chosen) else ()
    return [*found, *(access.webhooks(user_quota) if has_access(chosen) else ())]


def add(
    manager: Manager,
    chosen: Sequence[str],
    settings: providers.ProviderSettings | None = None,
    cluster_access: AccessServices | None = None,
) -> providers.Providers | None:
    """Add the chosen controllers. `settings` and `cluster_access`: required for the group providers."""
    dial = cluster_access.transports.dial if cluster_access is not None else None
    remote = setup.add_controllers(manager, only=chosen, dial=dial) if has_core(chosen) else None
    provisioning.add(manager, only=chosen)
    if not has_providers(chosen):
        return None
    assert settings is not None
    if remote is None:
        remote = providers.own_remote(manager, dial)
    if cluster_access is not None:
        cluster_access.add(manager, remote)
    return providers.add(manager, settings, only=chosen, remote=remote)


async def register_drivers(client: Client, chosen: Sequence[str]) -> None:
    """Register the drivers that come with this program; existing objects stay unchanged."""
    try:
        await providers.register_drivers(client, chosen)
    except StatusError as error:
        raise StartRefused(f"cannot register the built-in drivers: {error}") from None


async def install_roles(client: Client, chosen: Sequence[str]) -> None:
    """Install the ClusterRoles that administrators can bind to users."""
    if not has_access(chosen):
        return
    try:
        await roles.install(client)
    except StatusError as error:
        raise StartRefused(f"cannot install the ClusterRoles of tenants: {error}") from None


async def make_workspaces(client: Client, chosen: Sequence[str]) -> None:
    """Create missing namespaces that manifests of declared clusters expect."""
    if not has_provisioning(chosen):
        return
    try:
        await provisioning.make_workspaces(client)
    except StatusError as error:
        raise StartRefused(f"cannot create the namespaces of declared clusters: {error}") from None


def job_settings(data: Path, server_url: str, ca_pem: bytes) -> JobRunnerSettings:
    """Return the settings of the job runner for an absolute data directory: where Jobs live, and the key that signs
    them. Creates the key if there is none."""
    path = data / FILE
    try:
        key = JobKey.load(path)
    except (OSError, ValueError) as error:
        raise StartRefused(f"cannot read the key that signs Jobs, {path}: {error}") from None
    return JobRunnerSettings(
        directory=data / "jobs", hosts=data / "hosts", server_url=server_url, ca_pem=ca_pem, key=key
    )


# -- a core that another program runs


class _Served(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Served] = []


async def require_core(client: HttpClient, chosen: Sequence[str]) -> None:
    """Raise StartRefused if the chosen controllers need a core and none is installed."""
    if has_core(chosen) or set(chosen) <= {JOB_RUNNER}:
        return
    served = await _served_by_core(client)
    missing = [f"{kind.plural}.{kind.group}" for kind in _CORE_KINDS if kind.plural not in served]
    if missing:
        raise StartRefused(
            f"Cluster API is not installed on this cluster: {', '.join(missing)} not served in {capi_names.VERSION}. "
            "The chosen controllers need a Cluster API core: install upstream's (v1.11 or newer) first, or run "
            "Remuda's by omitting --controllers"
        )


async def _served_by_core(client: HttpClient) -> set[str]:
    try:
        found = await client.raw_get(f"/apis/{capi_names.API_VERSION}")
    except NotFound:
        return set()
    except StatusError as error:
        raise StartRefused(f"cannot check whether Cluster API is installed: {error}") from None
    return {one.name for one in msgspec.json.decode(found, type=_Resources).resources}
