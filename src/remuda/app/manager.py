"""The controllers on any Kubernetes: one process of possibly several, of which one leads."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import msgspec

from remuda.app import controllers, process
from remuda.app.process import Refused
from remuda.kube import kubeconfig
from remuda.kube.client import Client, Target
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key
from remuda.runtime.election import Election, LeadershipLost
from remuda.runtime.election import Settings as ElectionSettings
from remuda.runtime.manager import Manager

LEASE_NAME = "remuda"
_NAMESPACES = Target("v1", "namespaces")
_ANSWER_SECONDS = 15.0

Address = tuple[str, int]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    kubeconfig: Path | None = None
    context: str = ""
    controllers: tuple[str, ...] = ()
    namespace: str = ""
    leader_elect: bool = True
    lease_namespace: str = "remuda-system"
    lease_seconds: float = 15.0
    health: Address | None = None
    webhooks: Address | None = None
    webhook_url: str = ""


def run(settings: Settings, *, verbose: bool = False) -> int:
    """Works until a signal; the exit code says whether it ended well."""
    return process.run("manager", lambda stop: serve(settings, stop), verbose=verbose)


async def serve(settings: Settings, stop: asyncio.Event) -> int:
    started = time.monotonic()
    chosen = controllers.choose(settings.controllers)
    client = await connect(settings)
    try:
        await controllers.install(client, chosen)
        manager = Manager(client, namespace=settings.namespace)
        controllers.add(manager, chosen)
        election = await _election(client, settings) if settings.leader_elect else None
        print(
            f"remuda manager ready after {time.monotonic() - started:.2f} s, pid {os.getpid()}, "
            + ("stands for the lead" if election else "leads alone"),
            flush=True,
        )
        await manager.run(stop, election)
    except LeadershipLost as lost:
        raise Refused(f"stopped, because another may lead by now: {lost}") from None
    finally:
        await client.close()
    return 0


async def connect(settings: Settings) -> Client:
    """A client the server has answered. Refuses in words what cannot work."""
    from remuda.kube.http import HttpClient

    try:
        access = kubeconfig.load(settings.kubeconfig, settings.context)
    except kubeconfig.KubeconfigError as error:
        raise Refused(str(error)) from None
    client = HttpClient(access)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await client.raw_get("/version")
    except (StatusError, OSError, TimeoutError) as error:
        await client.close()
        why = str(error) or f"no answer within {_ANSWER_SECONDS:.0f} s"
        raise Refused(f"cannot reach {access.server}: {why}") from None
    return client


async def _election(client: Client, settings: Settings) -> Election:
    await _make_namespace(client, settings.lease_namespace)
    seconds = settings.lease_seconds
    return Election(
        client,
        Key(settings.lease_namespace, LEASE_NAME),
        settings=ElectionSettings(lease_seconds=seconds, renew_seconds=seconds * 2 / 3, retry_seconds=seconds / 7.5),
    )


async def _make_namespace(client: Client, name: str) -> None:
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        await client.create(_NAMESPACES, "", obj)
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise Refused(f"cannot make the namespace {name} for the lease: {error}") from None
