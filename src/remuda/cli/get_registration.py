"""`remuda get registration`: print the command line that registers a host in a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli import shell_completion
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP, namespace_option
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

_ROLES = {"all": "--etcd --controlplane --worker", "server": "--etcd --controlplane", "worker": "--worker"}


@click.command(name="registration", context_settings=HELP)
@click.argument("cluster", shell_complete=shell_completion.clusters)
@click.option(
    "--role",
    type=click.Choice([*_ROLES]),
    default="worker",
    show_default=True,
    help="What the host becomes: a server (etcd and control plane), a worker, or all of it.",
)
@namespace_option("cluster")
@kubeconfig_option
def command(cluster: str, role: str, namespace: str, kubeconfig: Path | None) -> None:
    """Print the command line that registers a host in CLUSTER. Run it in a shell on the host.

    The line contains the cluster's registration token: give it only to people who may add hosts. Running it again on
    the same host finds the same machine.

    \b
      remuda get registration prairie
      ssh root@192.0.2.12 "$(remuda get registration prairie --role worker)"
    """
    line = connected(kubeconfig, lambda client: _line(client, namespace, cluster))
    click.echo(f"{line} {_ROLES[role]}")
    print_note("the line contains a token: it registers any host that runs it")


async def _line(client: HttpClient, namespace: str, name: str) -> str:
    """Raises ClickException."""
    from remuda.capi.remote import secret_data
    from remuda.cli.describe import no_such_cluster
    from remuda.providers.bootstrap.clusters import COMMAND, registration_secret
    from remuda.provisioning import tree_loader

    try:
        place = await tree_loader.find(client, namespace, name)
    except tree_loader.NoSuchCluster as error:
        raise no_such_cluster(error) from None
    data = await secret_data(client, place, registration_secret(name))
    if not data or COMMAND not in data:
        raise click.ClickException(
            f"cluster {place}/{name} has no registration command yet. Its controllers create it within seconds; if "
            f"they do not, remuda why {name} -n {place} shows the reason"
        )
    return data[COMMAND].decode()
