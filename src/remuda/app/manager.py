"""The controllers on an existing Kubernetes: one or several replicas, of which one leads.

Invalid settings are refused with a message before anything is written. A manager of one namespace leaves cluster-wide
objects (CRDs, webhooks) to a manager of the whole cluster, except for outdated CRDs that it has the right to update.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from remuda.access.types import Quota
from remuda.app import controllers, health, process, webhooks
from remuda.app.access import AccessServices, administration_endpoints, kubernetes
from remuda.app.log_setup import DEFAULT_LOGS, LogSettings
from remuda.app.node_server import NodeServer
from remuda.app.process import Address, StartRefused
from remuda.app.site import SiteSettings, warn_of_unknown_name
from remuda.jobs.runner import CONTROLLER as JOB_RUNNER
from remuda.jobs.runner import JobRunnerSettings as JobSettings
from remuda.kube import kubeconfig
from remuda.kube.client import Client, Target
from remuda.kube.errors import AlreadyExists, Forbidden, NotFound, StatusError, Unauthorized, Unreachable
from remuda.kube.http import HttpClient
from remuda.kube.objects import Key
from remuda.providers import setup as providers
from remuda.providers.bootstrap.setup import BootstrapSettings
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.runtime.election import Election, ElectionSettings, LeadershipLost
from remuda.runtime.manager import Manager
from remuda.runtime.metrics import Metrics
from remuda.runtime.tasks import Stopped, unless
from remuda.runtime.webhooks import Location

NAMESPACE = "remuda-system"
LEASE_NAME = "remuda"
_NAMESPACES = Target("v1", "namespaces")
_ANSWER_SECONDS = 15.0


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True):
    kubeconfig: Path | None = None
    context: str = ""
    controllers: tuple[str, ...] = ()
    namespace: str = ""
    leader_elect: bool = True
    lease_namespace: str = ""
    lease_seconds: float = 15.0
    health: Address | None = None
    webhooks: Address | None = None
    webhook_url: str = ""
    nodes: Address | None = None  # address to serve hosts on; without it, providers do not run
    site: SiteSettings = SiteSettings()
    bootstrap: BootstrapSettings = BootstrapSettings()
    machine: MachineSettings = MachineSettings(run_jobs=False)
    data_dir: Path | None = None  # of the audit log, and of Jobs that this process runs
    user_quota: Quota = Quota()  # for users without a quota of their own

    @property
    def lease(self) -> Key:
        """Return the Lease: one per managed namespace, so that managers of two namespaces do not compete."""
        name = f"{LEASE_NAME}-{self.namespace}" if self.namespace else LEASE_NAME
        return Key(self.lease_namespace or self.namespace or NAMESPACE, name)


def run(settings: ManagerSettings, logs: LogSettings = DEFAULT_LOGS) -> int:
    """Run until a signal, and return the exit code."""
    return process.run("manager", lambda stop: serve(settings, stop), logs)


def remove_webhooks(settings: ManagerSettings, logs: LogSettings = DEFAULT_LOGS) -> int:
    async def remove(stop: asyncio.Event) -> int:
        client = await connect(settings)
        try:
            print(f"remuda manager: {await webhooks.remove(client)}")
        finally:
            await client.close()
        return 0

    return process.run("manager", remove, logs)


async def serve(settings: ManagerSettings, stop: asyncio.Event) -> int:
    chosen = _choose(settings)
    found_at = _webhooks_at(settings, chosen)
    metrics = Metrics()
    try:
        client = await unless(stop, connect(settings, metrics))
    except Stopped:
        return 0
    try:
        await _manage(client, settings, chosen, found_at, metrics, stop)
    except Stopped:
        pass
    except LeadershipLost as lost:
        raise StartRefused(f"stopped, because another replica may lead by now: {lost}") from None
    finally:
        await client.close()
    return 0


def _choose(settings: ManagerSettings) -> tuple[str, ...]:
    """Return the controllers to run. Providers need an address for hosts; without one, the default is the core."""
    chosen = controllers.choose(settings.controllers)
    controllers.check(chosen)
    if settings.namespace:
        chosen = _without_access(settings, chosen)
    if settings.nodes is None:
        if settings.controllers and controllers.has_providers(chosen):
            raise StartRefused(
                "the group providers needs --nodes-listen, where this manager serves hosts, and --server-url"
            )
        if settings.site != SiteSettings():
            raise StartRefused(
                "--server-url, --tls-cert, --assets and --artefacts need --nodes-listen, the address to serve hosts on"
            )
        return chosen if settings.controllers else controllers.GROUPS["core"]
    settings.site.check()
    settings.site.name(settings.nodes)
    settings.site.presented(settings.nodes)
    if not settings.nodes[1] and not settings.site.server_url:
        raise StartRefused("--nodes-listen with port 0 selects any free port: choose a port, or add --server-url")
    if not settings.machine.run_jobs:
        return tuple(name for name in chosen if name != JOB_RUNNER)
    if settings.data_dir is None:
        raise StartRefused(
            "--run-jobs needs --data-dir, the directory of Jobs and of the hosts that they create on this machine"
        )
    return chosen


def _without_access(settings: ManagerSettings, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Return the controllers without those of the group access: users and grants are cluster-wide."""
    left = tuple(name for name in chosen if not controllers.has_access((name,)))
    if settings.controllers and left != chosen:
        raise StartRefused("the group access is cluster-wide: run it without --namespace")
    return left


async def _manage(
    client: HttpClient,
    settings: ManagerSettings,
    chosen: tuple[str, ...],
    found_at: Location | None,
    metrics: Metrics,
    stop: asyncio.Event,
) -> None:
    started = time.monotonic()
    manager = Manager(client, namespace=settings.namespace, metrics=metrics)
    election = _election(client, settings) if settings.leader_elect else None
    begun = asyncio.Event()

    async def announce_ready() -> None:
        begun.set()
        mode = "with leader election" if election else "without leader election"
        process.announce(
            f"remuda manager ready after {time.monotonic() - started:.2f} s, pid {os.getpid()}, "
            f"{mode}, {controllers.ready_text(chosen)}"
        )

    def announce_lead() -> None:
        if election is not None:
            print(f"remuda manager leads by lease {settings.lease} as {election.identity}", flush=True)

    checks = {"start": lambda: "" if begun.is_set() else "still starting"}
    if election is not None:
        checks["lease"] = election.problem
    async with health.served(settings.health, manager, checks):
        # Check what the API server supports before anything is written.
        if found_at is not None:
            await unless(stop, webhooks.require(client))
        await unless(stop, controllers.require_core(client, chosen))
        await unless(stop, controllers.install(client, chosen))
        if election is not None or found_at is not None or settings.nodes is not None:
            await unless(stop, _make_namespace(client, settings.lease.namespace))
        if not settings.namespace:
            await unless(stop, controllers.make_workspaces(client, chosen))
            await unless(stop, controllers.install_roles(client, chosen))
        await unless(stop, _add_controllers(manager, client, settings, chosen))
        if found_at is not None and settings.webhooks is not None:
            own = await unless(stop, webhooks.own_user(client))
            hooks = controllers.webhooks(chosen, settings.user_quota)
            webhooks.add(manager, hooks, settings.webhooks, found_at, settings.lease.namespace, own)
        manager.at_start(announce_ready)
        manager.at_lead(announce_lead)
        await manager.run(stop, election)


async def _add_controllers(
    manager: Manager, client: HttpClient, settings: ManagerSettings, chosen: tuple[str, ...]
) -> None:
    if settings.nodes is None or not controllers.has_providers(chosen):
        controllers.add(manager, chosen)
        return
    server = NodeServer(client, client.access, settings.nodes, settings.site, settings.lease.namespace)
    site = await server.prepare()
    await warn_of_unknown_name(site)
    machine = settings.machine
    if settings.data_dir is not None:
        machine = msgspec.structs.replace(machine, driver_directory=str(settings.data_dir.absolute() / "drivers"))
    store = settings.site.artefact_store(settings.data_dir)
    job_settings = _job_settings(settings, client)
    endpoints = administration_endpoints(client, store, None if job_settings is None else job_settings.hosts)
    access = AccessServices(manager, site, kubernetes(client), chosen, endpoints)
    wanted = providers.ProviderSettings(
        site=site,
        bootstrap=settings.bootstrap,
        machine=machine,
        jobs=job_settings,
        artefacts=store,
        tunnels=True,
        silence=access.transports.silent_since,
        proxied=access.proxied,
    )
    added = controllers.add(manager, chosen, wanted, access)
    if added is not None and added.registration is not None:
        server.add(manager, site, added.registration, store, access.routes(), access.on_denied)
    if not settings.namespace:
        await controllers.register_drivers(client, chosen)


def _job_settings(settings: ManagerSettings, client: HttpClient) -> JobSettings | None:
    if not settings.machine.run_jobs or settings.data_dir is None:
        return None
    data, access = settings.data_dir.absolute(), client.access
    ca_pem = access.ca.read_bytes() if isinstance(access.ca, Path) else access.ca
    return controllers.job_settings(data, access.server, ca_pem)


def _webhooks_at(settings: ManagerSettings, chosen: tuple[str, ...]) -> Location | None:
    """Return the address at which the API server is to call the webhooks, if they are enabled."""
    if settings.webhooks is None:
        if settings.webhook_url:
            raise StartRefused("--webhook-url needs --webhook-listen, the address on which webhooks are served")
        if settings.user_quota != Quota():
            raise StartRefused("webhooks enforce --user-quota: add --webhook-listen")
        return None
    if settings.namespace:
        raise StartRefused(
            "webhooks check the objects of every namespace: serve them from a manager without --namespace, or omit "
            "--webhook-listen"
        )
    if not controllers.webhooks(chosen):
        raise StartRefused("none of the chosen controllers has webhooks: omit --webhook-listen")
    return webhooks.location(settings.webhooks, settings.webhook_url)


async def connect(settings: ManagerSettings, metrics: Metrics | None = None) -> HttpClient:
    """Return a client whose server has answered. Raises StartRefused."""
    try:
        access = kubeconfig.load(settings.kubeconfig, settings.context)
    except kubeconfig.KubeconfigError as error:
        raise StartRefused(str(error)) from None
    client = HttpClient(access, observe=metrics.requests_to(urlsplit(access.server).netloc) if metrics else None)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await client.raw_get("/version")
    except Forbidden:
        return client  # authenticated; missing permissions show in later requests
    except (StatusError, TimeoutError) as error:
        await client.close()
        raise StartRefused(_unanswered(error, access)) from None
    return client


def _unanswered(error: StatusError | TimeoutError, access: kubeconfig.ClientConfig) -> str:
    if isinstance(error, TimeoutError):
        return f"{access.server} did not answer within {_ANSWER_SECONDS:.0f} s"
    if isinstance(error, Unreachable):
        return str(error)
    if isinstance(error, Unauthorized):
        return f"{access.server} rejects the credentials of {access.origin}: {error}"
    return f"{access.server} does not respond like a Kubernetes API server: {error}"


def _election(client: Client, settings: ManagerSettings) -> Election:
    seconds = settings.lease_seconds
    return Election(
        client,
        settings.lease,
        # The ratios are those of client-go's defaults: 15 s, 10 s and 2 s.
        settings=ElectionSettings(lease_seconds=seconds, renew_seconds=seconds * 2 / 3, retry_seconds=seconds / 7.5),
    )


async def _make_namespace(client: Client, name: str) -> None:
    """Create the namespace of the Lease and the certificates.

    Without permission to create it, an existing one is used.
    """
    try:
        with contextlib.suppress(Forbidden, NotFound):
            await client.get(_NAMESPACES, "", name)
            return
    except StatusError as error:
        raise StartRefused(f"cannot read the namespace {name}: {error}") from None
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        with contextlib.suppress(AlreadyExists):
            await client.create(_NAMESPACES, "", obj)
    except StatusError as error:
        raise StartRefused(
            f"cannot create the namespace {name}: {error}. Create it, or choose another with --lease-namespace"
        ) from None
