"""`remuda logs`: logs of the Jobs that create and remove machines, and of the agents on them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli import machine, shell_completion
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.exit_codes import clean_up_when_terminated
from remuda.cli.options import HELP, namespace_option

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.kube.objects import Key


@click.group(name="logs", context_settings=HELP)
def command() -> None:
    """Show the logs of the Jobs that create and remove machines, or of the agents on them.

    Controllers log to stderr of `remuda up` or `remuda manager`. To see why a cluster is not ready, use `remuda why`.

    \b
      remuda logs cluster prairie
      remuda logs machine prairie-workers-7x2kq-abcde -f
      remuda logs machine prairie-workers-7x2kq-abcde --agent
    """


command.add_command(machine.logs, "machine")


@command.command(context_settings=HELP)
@click.argument("name", shell_complete=shell_completion.clusters)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines.")
@namespace_option("cluster")
@kubeconfig_option
def cluster(name: str, follow: bool, namespace: str, kubeconfig: Path | None) -> None:
    """Show the logs of the Jobs that create or remove the machines of a cluster, or their last failures.

    \b
      remuda logs cluster prairie
      remuda logs cluster prairie --follow
    """
    clean_up_when_terminated()

    async def show(client: HttpClient) -> None:
        machines = await _machines(client, namespace, name)
        if not machines:
            raise click.ClickException(f"cluster {name} has no machines yet; see: remuda why {name}")
        if follow:
            await asyncio.gather(*(_show(client, one, follow, prefix=f"{one.name} | ") for one in machines))
            return
        for one in machines:
            click.echo(click.style(f"==> {one.name} <==", bold=True))
            await _show(client, one, follow)

    connected(kubeconfig, show)


async def _machines(client: HttpClient, namespace: str, name: str) -> list[Key]:
    """Return the <Driver>Machines of a cluster, which own the Jobs."""
    from remuda.capi import names
    from remuda.capi.types import MACHINE
    from remuda.cli.describe import no_such_cluster
    from remuda.kube.client import list_all
    from remuda.kube.objects import Key
    from remuda.provisioning import tree_loader

    try:
        place = await tree_loader.find(client, namespace, name)
    except tree_loader.NoSuchCluster as error:
        raise no_such_cluster(error) from None
    label = f"{names.CLUSTER_NAME}={names.label_value(name)}"
    listing = await list_all(client, MACHINE.target, place, label_selector=label)
    references = (MACHINE.decode(value).spec.infrastructure_ref for value in listing.items)
    return sorted(Key(place, one.name) for one in references if one is not None)


async def _show(client: HttpClient, one: Key, follow: bool, prefix: str = "") -> None:
    from remuda.cli import machine_logs
    from remuda.providers.machine.access import NoAccess

    try:
        await machine_logs.show(client, one, follow, prefix)
    except NoAccess as error:
        click.echo(f"{prefix}{error}", err=True)
