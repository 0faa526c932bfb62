"""`remuda leaks`: servers and networks that cost something and that nobody uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli.connection import DATA_DIR, connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import JSON, TABLE, WIDE, YAML, output_option, print_table, print_value

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.providers.machine.leaks import Found

_LEAKS, _UNKNOWN = 1, 2
_COLUMNS = ("DRIVER", "WHAT", "ID", "NAME", "STATE", "MADE FOR", "CLUSTER")


@click.command(name="leaks", context_settings=HELP)
@kubeconfig_option
@click.option("--driver", "only", multiple=True, metavar="DRIVER", help="Look only there; may be given several times.")
@output_option(TABLE, WIDE, JSON, YAML)
@click.option(
    "--hosts",
    type=click.Path(file_okay=False, path_type=Path),
    default=DATA_DIR / "hosts",
    show_default=True,
    help="Where drivers keep servers that live on this machine (DATA_DIR/hosts of the management plane).",
)
def command(kubeconfig: Path | None, only: tuple[str, ...], output: str, hosts: Path) -> None:
    """List servers that carry the tag of this management plane and that no machine owns, and what drivers have made for
    clusters that are gone.

    Every driver in use is asked, with the options and credentials of its Configs, MachineTemplates, machines and
    RKEClusters. Exit code 0: none; 1: there are some; 2: none where it could look, but it could not look everywhere.

    \b
      remuda leaks
    """
    from remuda.providers.machine import leaks

    place = hosts.absolute()

    async def find(client: HttpClient) -> Found:
        return await leaks.find(client, place, only)

    found = connected(kubeconfig, find)
    for why in found.unknown:
        click.echo(f"could not look everywhere: {why}", err=True)
    if output in (JSON, YAML):
        print_value(found.leaks, output)
    elif found.leaks:
        rows = [(one.driver, one.what, one.id, one.name, one.state, one.machine, one.cluster) for one in found.leaks]
        print_table(_COLUMNS, rows, whole=output == WIDE)
    else:
        click.echo("no leaks", err=True)
    raise SystemExit(_LEAKS if found.leaks else _UNKNOWN if found.unknown else 0)
