"""`remuda describe cluster`: all objects of a cluster and their states, as a tree.

A warning precedes the tree if objects are damaged on the disk of the management plane.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli import describe_machine, progress, shell_completion
from remuda.cli.connection import connected, kubeconfig_option, show_warning
from remuda.cli.options import HELP, namespace_option
from remuda.cli.output import JSON, TABLE, YAML, output_option, print_value, terminal_width
from remuda.cli.workload_cluster import ClusterNotFound

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.tree import Branch

_DAMAGE_PATH = "/readyz/objects"  # needs a permission of its own, because it names other users' objects
_DAMAGED = 500


class Describe(click.Group):
    """Group that also takes TYPE/NAME: `describe cluster/prairie`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        kind, slash, name = args[0].partition("/")
        return super().resolve_command(ctx, [kind, name, *args[1:]] if slash else args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name.removesuffix("s"))


@click.group(name="describe", cls=Describe, context_settings=HELP)
def command() -> None:
    """Show a cluster and its objects as a tree, or one machine.

    \b
      remuda describe cluster prairie
      remuda describe cluster prairie --watch
      remuda describe machine prairie-workers-7x2kq-abcde
    """


command.add_command(describe_machine.command)


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

    click.echo("\n".join(lines(root, width=terminal_width())))


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
    return ClusterNotFound(
        f"{error}{'' if str(error).endswith('?') else '.'} `remuda get clusters` lists the existing ones"
    )


def _watch(kubeconfig: Path | None, namespace: str, name: str) -> None:
    place = place_of(kubeconfig, namespace, name)
    connected(kubeconfig, lambda client: progress.until(client, place, name, seconds=None, wanted=progress.NEVER))
