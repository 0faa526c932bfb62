"""`remuda retry`: start a failed creation or removal of a server again, at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import exit_codes
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP, namespace_option
from remuda.cli.subjects import CommandSubject, subject_argument
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.kube.client import Target
    from remuda.kube.http import HttpClient

Json = dict[str, Any]


@click.command(name="retry", context_settings=HELP)
@subject_argument("cluster", "machine")
@namespace_option("cluster or machine")
@kubeconfig_option
def command(subject: CommandSubject, namespace: str, kubeconfig: Path | None) -> None:
    """Retry what has failed: the servers and the infrastructure of a cluster, or the server of one machine.

    After several failures controllers stop trying, or wait for minutes. This command lets them try again at once, with
    a new budget of attempts. Fix the cause first: `remuda why` names it. Exit code 1: nothing has failed.

    \b
      remuda retry prairie
      remuda retry machine prairie-workers-7x2kq-abcde
    """

    async def work(client: HttpClient) -> list[str]:
        from remuda.kube import clock
        from remuda.providers.shared.jobs.budget import RETRY

        asked = []
        for target, obj in await _candidates(client, subject, namespace):
            if has_failed(obj):
                metadata = obj["metadata"]
                patch = {"metadata": {"annotations": {RETRY: clock.now_micro()}}}
                await client.patch(target, metadata["namespace"], metadata["name"], patch)
                asked.append(f"{obj['kind']} {metadata['namespace']}/{metadata['name']}")
        return asked

    found = connected(kubeconfig, work)
    for one in found:
        click.echo(f"{one}: retry requested")
    if not found:
        print_note(f"{subject.type} {subject.name}: no attempt to create or remove a server has failed")
        if subject.type == "cluster":
            print_note(f"to see what it waits for: remuda why {subject.name}")
        raise SystemExit(exit_codes.NO)


def has_failed(obj: Json) -> bool:
    """Return whether the last attempt of a server, or of a cluster's infrastructure, has failed."""
    status = obj.get("status") or {}
    stalled = [one for one in status.get("conditions") or () if one.get("type") == "Stalled"]
    failures = status.get("failures") or (status.get("infrastructure") or {}).get("failures")
    return bool(failures) or any(one.get("status") == "True" for one in stalled)


async def _candidates(client: HttpClient, subject: CommandSubject, namespace: str) -> Sequence[tuple[Target, Json]]:
    """Return the objects whose controllers know the annotation. Raises ClickException."""
    from remuda.capi import names
    from remuda.cli.describe import no_such_cluster
    from remuda.cli.describe_machine import find_machine
    from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
    from remuda.provisioning import tree_loader

    if subject.type == "machine":
        machine = await find_machine(client, namespace, subject.name)
        return await _servers(client, [machine])
    try:
        place = await tree_loader.find(client, namespace, subject.name)
    except tree_loader.NoSuchCluster as error:
        raise no_such_cluster(error) from None
    label = f"{names.CLUSTER_NAME}={names.label_value(subject.name)}"
    infrastructure = await _get(client, RKE_CLUSTER.target, place, subject.name)
    own = [] if infrastructure is None else [(RKE_CLUSTER.target, infrastructure)]
    return [*own, *await _servers(client, await _machines(client, place, label))]


async def _machines(client: HttpClient, namespace: str, label: str) -> list[Json]:
    import msgspec

    from remuda.capi.types import MACHINE
    from remuda.kube.client import list_all

    listing = await list_all(client, MACHINE.target, namespace, label_selector=label)
    return [msgspec.json.decode(value) for value in listing.items]


async def _servers(client: HttpClient, machines: Sequence[Json]) -> list[tuple[Target, Json]]:
    """Return the <Driver>Machines of Machines; those of other providers are not ours to retry."""
    from remuda.capi.inflection import plural
    from remuda.kube.client import Target
    from remuda.providers.shared import names

    found = []
    for machine in machines:
        reference = machine["spec"].get("infrastructureRef") or {}
        if reference.get("apiGroup") == names.MACHINE_GROUP:
            target = Target(names.MACHINE_API_VERSION, plural(reference["kind"]).lower())
            server = await _get(client, target, machine["metadata"]["namespace"], reference["name"])
            if server is not None:
                found.append((target, server))
    return found


async def _get(client: HttpClient, target: Target, namespace: str, name: str) -> Json | None:
    import msgspec

    from remuda.kube.errors import NotFound

    try:
        found: Json = msgspec.json.decode(await client.get(target, namespace, name))
    except NotFound:
        return None
    return found
