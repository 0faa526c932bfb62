"""`remuda clusterctl-repository`: the files from which clusterctl creates clusters."""

from __future__ import annotations

from pathlib import Path

import click

from remuda.cli.connection import connected
from remuda.cli.options import HELP


@click.command(name="clusterctl-repository", context_settings=HELP)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write templates for the drivers that are active on this management plane, including those of "
    "rancher-machine. Default: the drivers of this installation.",
)
def command(directory: Path, kubeconfig: Path | None) -> None:
    """Write a clusterctl repository to DIRECTORY: a cluster template per driver, the components of the providers, and a
    config file that makes clusterctl use them.

    \b
      remuda clusterctl-repository ./repository
      clusterctl --config ./repository/clusterctl.yaml generate cluster prairie \\
        --infrastructure remuda --flavor nspawn --worker-machine-count 2 \\
        --kubernetes-version v1.36.4+k3s1 | remuda apply -f -

    clusterctl lists the variables of a template with --list-variables. One directory can hold several versions.
    """
    from remuda.clusterctl import repository

    wanted = repository.flavours() if kubeconfig is None else connected(kubeconfig, repository.flavours_of)
    try:
        written = repository.write(directory, wanted)
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename or directory}: {error.strerror}") from None
    for path in written:
        click.echo(path)
