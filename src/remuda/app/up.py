"""The whole management plane in one process and on one port: embedded API server, controllers, endpoints for hosts."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import msgspec

from remuda.access.setup import allow_own_tokens
from remuda.access.types import Quota
from remuda.apiserver.server import ApiServer
from remuda.app import apiserver, controllers, health, node_server, process, running_hosts, server_record
from remuda.app.access import AccessServices, UserTokens, administration_endpoints, audit_denied_requests, embedded
from remuda.app.apiserver import ServerSettings
from remuda.app.log_setup import DEFAULT_LOGS, LogSettings
from remuda.app.process import Address
from remuda.app.site import SiteSettings, warn_of_unknown_name
from remuda.kube.errors import StatusError
from remuda.providers import setup as providers
from remuda.providers.bootstrap.setup import BootstrapSettings
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.runtime.manager import Manager


class UpSettings(msgspec.Struct, frozen=True, kw_only=True):
    server: ServerSettings
    controllers: tuple[str, ...] = ()
    health: Address | None = None
    site: SiteSettings = SiteSettings()
    bootstrap: BootstrapSettings = BootstrapSettings()
    machine: MachineSettings = MachineSettings()
    user_quota: Quota = Quota()  # for users without a quota of their own
    log_file: Path | None = None  # of a server in the background


def run(settings: UpSettings, logs: LogSettings = DEFAULT_LOGS) -> int:
    """Serve until a signal, and return the exit code."""
    return process.run("up", lambda stop: serve(settings, stop), logs)


async def serve(settings: UpSettings, stop: asyncio.Event) -> int:
    started = time.monotonic()
    chosen = controllers.choose(settings.controllers)
    controllers.check(chosen)
    routes = node_server.starting_routes() if controllers.has_providers(chosen) else None
    wanted = _with_names(settings, chosen)
    presented = settings.site.presented((wanted.host, wanted.port))
    kinds_missing = "the definitions of Remuda's own kinds are not installed yet"
    controllers_missing = "the controllers have not started yet"
    server = await apiserver.start(
        wanted,
        admission=controllers.embedded_admission(
            settings.user_quota, settings.site.only_here((wanted.host, wanted.port))
        ),
        routes=routes,
        presented=presented,
        readiness={"kinds": lambda: kinds_missing, "controllers": lambda: controllers_missing},
    )
    data_dir = settings.server.data_dir
    record = apiserver.record_of(server, settings.log_file)

    def announce_ready() -> None:
        nonlocal controllers_missing
        controllers_missing = ""
        server_record.write(data_dir, msgspec.structs.replace(record, ready=True))
        process.announce(
            f"remuda ready at {server.url} after {time.monotonic() - started:.2f} s, "
            f"pid {os.getpid()}, kubeconfig {server.kubeconfig}"
        )
        if sys.stderr.isatty():  # a person started it, perhaps for the first time
            print("Press Ctrl-C to stop. Next, in another terminal:\n", file=sys.stderr)
            print(f"  export KUBECONFIG={server.kubeconfig.absolute()}", file=sys.stderr)
            print("  remuda create cluster prairie --wait\n", file=sys.stderr, flush=True)

    try:
        server_record.write(data_dir, record)
        manager = Manager(server.client())
        manager.at_lead(announce_ready)
        async with health.served(settings.health, manager, {}):
            # The embedded API server always has the CRDs of Cluster API: providers need them, whichever core runs.
            await controllers.install(server.client(), (*controllers.GROUPS["core"], *chosen))
            kinds_missing = ""
            await controllers.install_roles(server.client(), chosen)
            await controllers.make_workspaces(server.client(), chosen)
            await _add(manager, server, settings, chosen)
            await manager.run(stop)
        if sys.stderr.isatty():  # a person pressed Ctrl-C
            await _print_hosts(server, data_dir)
    except StatusError as error:
        raise process.StartRefused(str(error)) from None
    finally:
        server_record.remove(data_dir)
        await server.stop()
    return 0


async def _print_hosts(server: ApiServer, data_dir: Path) -> None:
    found = await running_hosts.find(server.client())
    if found:
        print("\n".join(["", *running_hosts.text(found, data_dir)]), file=sys.stderr, flush=True)


def _with_names(settings: UpSettings, chosen: tuple[str, ...]) -> ServerSettings:
    """Add the name under which hosts reach the server to its certificate. Raises StartRefused for an unusable one."""
    server = settings.server
    if not controllers.has_providers(chosen):
        return server
    settings.site.check()
    return msgspec.structs.replace(server, names=(*server.names, settings.site.name((server.host, server.port))))


async def _add(manager: Manager, server: ApiServer, settings: UpSettings, chosen: tuple[str, ...]) -> None:
    if not controllers.has_providers(chosen):
        controllers.add(manager, chosen)
        return
    listens = (settings.server.host, server.front.port)
    site = settings.site.settled(listens, server.authorities)
    await warn_of_unknown_name(site)
    data = settings.server.data_dir.absolute()
    machine = msgspec.structs.replace(settings.machine, driver_directory=str(data / "drivers"))
    store = settings.site.artefact_store(data)
    job_settings = controllers.job_settings(data, server.url, server.authorities)
    endpoints = administration_endpoints(server.client(), store, job_settings.hosts)
    access = AccessServices(manager, site, embedded(server), chosen, endpoints)
    audit_denied_requests(server, access.audit)
    if access.tokens is not None:
        server.authenticator.add(UserTokens(access.tokens, server.authenticator.api_audiences))
        await allow_own_tokens(server.client())
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
    assert added is not None
    if added.registration is not None:
        node_server.mount(server.front, site, added.registration, settings.site.assets, store, access.on_denied)
    # Serve access only when the caches are filled: until then every token and cluster would be unknown.
    manager.at_start(lambda: _mount(server, access))
    if added.job_runner is not None:
        server.pod_logs.add(added.job_runner.log_source)
    await controllers.register_drivers(server.client(), chosen)


async def _mount(server: ApiServer, access: AccessServices) -> None:
    for prefix, handler in access.routes().items():
        server.front.mount(prefix, handler)
