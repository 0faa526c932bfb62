"""`remuda clusterctl-repository`: what clusterctl makes clusters from, as files."""

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
    help="Of a management plane: templates for the drivers that are active there, those of rancher-machine among them. "
    "Default: the drivers of this installation.",
)
def command(directory: Path, kubeconfig: Path | None) -> None:
    """Write a repository for clusterctl to DIRECTORY: a cluster template per driver, the components of the providers,
    and a config file that makes clusterctl use them.

    \b
      remuda clusterctl-repository ./repository
      clusterctl --config ./repository/clusterctl.yaml generate cluster prairie \\
        --infrastructure remuda --flavor nspawn --worker-machine-count 2 \\
        --kubernetes-version v1.36.4+k3s1 | remuda apply -f -

    What a template can be told: --list-variables. Versions of this program stand side by side in one directory.
    """
    from remuda.clusterctl import repository

    wanted = repository.flavours() if kubeconfig is None else connected(kubeconfig, repository.flavours_of)
    try:
        written = repository.write(directory, wanted)
    except OSError as error:
        raise click.ClickException(f"{error.filename or directory} cannot be written: {error.strerror}") from None
    for path in written:
        click.echo(path)
