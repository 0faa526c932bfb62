"""`remuda describe cluster`: all objects of a cluster and their states, as a tree.

A warning precedes the tree if objects are damaged on the disk of the management plane.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli import progress, shell_completion
from remuda.cli.connection import connected, kubeconfig_option, show_warning
from remuda.cli.options import HELP, namespace_option
from remuda.cli.output import JSON, TABLE, YAML, output_option, print_value

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.tree import Branch

_DAMAGE_PATH = "/readyz/objects"  # needs a permission of its own, because it names other users' objects
_DAMAGED = 500


@click.group(name="describe", context_settings=HELP)
def command() -> None:
    """Show a cluster and its objects as a tree.

    \b
      remuda describe cluster prairie
      remuda describe cluster prairie --watch
    """


@command.command(context_settings=HELP)
@click.argument("name", shell_complete=shell_completion.clusters)
@namespace_option("cluster")
@click.option("-w", "--watch", is_flag=True, help="Redraw the tree whenever it changes, until Ctrl-C.")
@output_option(TABLE, JSON, YAML)
@kubeconfig_option
def cluster(name: str, namespace: str, watch: bool, output: str, kubeconfig: Path | None) -> None:
    """Show a cluster and its objects as a tree; » marks the object that blocks it.

    \b
      remuda describe cluster prairie
      remuda describe cluster prairie --watch
      remuda describe cluster prairie -o json

    `remuda why` shows only what blocks the cluster, and what happens next.
    """
    if watch:
        if output != TABLE:
            raise click.UsageError("--watch draws the tree; for programs, use `remuda get clusters -o json --watch`")
        _watch(kubeconfig, namespace, name)
        return
    root = look(kubeconfig, namespace, name)
    if output != TABLE:
        print_value(root, output)
        return
    from remuda.cli.tree_text import lines

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo("\n".join(lines(root, width=width)))


def look(kubeconfig: Path | None, namespace: str, name: str) -> Branch:
    """Return the tree of a cluster. Raises ClickException."""
    from remuda.provisioning import tree_loader

    async def work(client: HttpClient) -> Branch:
        await _warn_of_damage(client)
        place = await tree_loader.find(client, namespace, name)
        return await tree_loader.look(client, place, name)

    try:
        return connected(kubeconfig, work)
    except tree_loader.NoSuchCluster as error:
        raise no_such_cluster(error) from None


async def _warn_of_damage(client: HttpClient) -> None:
    from remuda.kube.errors import StatusError

    try:
        await client.raw_get(_DAMAGE_PATH)
    except StatusError as error:
        if error.code == _DAMAGED:  # else: no permission, or not our API server
            show_warning(f"controllers are blocked: {str(error).removeprefix('internal server error: ').strip()}")


def place_of(kubeconfig: Path | None, namespace: str, name: str) -> str:
    """Return the namespace of a cluster. Raises ClickException."""
    from remuda.provisioning import tree_loader

    try:
        return connected(kubeconfig, lambda client: tree_loader.find(client, namespace, name))
    except tree_loader.NoSuchCluster as error:
        raise no_such_cluster(error) from None


def no_such_cluster(error: Exception) -> click.ClickException:
    return click.ClickException(f"{error}. `remuda get clusters` lists the existing ones")


def _watch(kubeconfig: Path | None, namespace: str, name: str) -> None:
    place = place_of(kubeconfig, namespace, name)
    connected(kubeconfig, lambda client: progress.until(client, place, name, seconds=None, wanted=progress.NEVER))
