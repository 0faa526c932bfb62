"""`remuda why`: the chain from a cluster down to the object that blocks it, what happens next, and a timeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli import exit_codes
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.describe import look, no_such_cluster
from remuda.cli.options import HELP, namespace_option
from remuda.cli.output import JSON, TABLE, YAML, output_option, print_value, terminal_width
from remuda.cli.subjects import cluster_argument

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.timeline import Timeline


@click.command(name="why", context_settings=HELP)
@cluster_argument
@namespace_option("cluster")
@click.option(
    "--timeline",
    "timed",
    is_flag=True,
    help="Show what happened to the cluster and its machines, when, and for how long.",
)
@output_option(TABLE, JSON, YAML)
@kubeconfig_option
def command(name: str, namespace: str, timed: bool, output: str, kubeconfig: Path | None) -> None:
    """Explain why a cluster is not ready: the chain down to the object that blocks it, and what happens next.

    \b
      remuda why prairie
      remuda why prairie -o json
      remuda why prairie --timeline

    Exit code 0: the cluster is ready; 1: it is not. With --timeline, the exit code is 0 in both cases.
    """
    if timed:
        _show_timeline(kubeconfig, namespace, name, output)
        return
    from remuda.provisioning import blocker

    root = look(kubeconfig, namespace, name)
    chain = blocker.blocking(root)
    if output != TABLE:
        import msgspec

        links = [msgspec.structs.replace(one, branches=()) for one in chain]
        by, act = (blocker.actor(chain), blocker.then(chain)) if chain else ("", "")
        print_value({"ready": not chain, "chain": links, "next": act, "nextBy": by}, output)
    elif not chain:
        click.echo(f"{root} is ready")
    else:
        from remuda.cli.tree_text import chain_lines

        click.echo("\n".join(chain_lines(root, width=terminal_width())))
    raise SystemExit(exit_codes.NO if chain else 0)


def _show_timeline(kubeconfig: Path | None, namespace: str, name: str, output: str) -> None:
    from remuda.cli.timeline_text import timeline_lines
    from remuda.provisioning import timeline, tree_loader

    async def work(client: HttpClient) -> Timeline:
        place = await tree_loader.find(client, namespace, name)
        return await timeline.gather(client, place, name)

    try:
        found = connected(kubeconfig, work)
    except tree_loader.NoSuchCluster as error:
        raise no_such_cluster(error) from None
    if output != TABLE:
        print_value(found, output)
    else:
        click.echo("\n".join(timeline_lines(found, width=terminal_width())))
