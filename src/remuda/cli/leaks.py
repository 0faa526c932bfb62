"""`remuda leaks`: servers and networks that still exist although no object owns them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import click

from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import JSON, TABLE, WIDE, YAML, output_option, print_table, print_value
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.providers.machine.leaks import LeakSearchResult

_LEAKS, _UNKNOWN = 1, 2
_COLUMNS = ("DRIVER", "TYPE", "ID", "NAME", "STATE", "MACHINE", "CLUSTER")
_PATH = "/k8s/manager/leaks"
_TIMEOUT_SECONDS = 300.0


@click.command(name="leaks", context_settings=HELP)
@kubeconfig_option
@click.option("--driver", "only", multiple=True, metavar="DRIVER", help="Check only this driver. Repeatable.")
@output_option(TABLE, WIDE, JSON, YAML)
@click.option(
    "--hosts",
    type=click.Path(file_okay=False, path_type=Path),
    help="Search this local folder (DATA_DIR/hosts of a manager) instead of asking the manager.",
)
def command(kubeconfig: Path | None, only: tuple[str, ...], output: str, hosts: Path | None) -> None:
    """List servers that carry the tag of this management plane but belong to no Machine, and resources that drivers
    created for deleted clusters.

    The command queries every driver in use, with the options and credentials of its Configs, MachineTemplates, machines
    and RKEClusters. The manager searches its own machine; you must be an administrator. Exit code 0: no leaks; 1: leaks
    found; 2: none found, but some places could not be searched.

    \b
      remuda leaks
    """
    from remuda.providers.machine import leaks
    from remuda.providers.machine.leaks import LeakSearchResult, LeakSearchScope

    if hosts is not None and not hosts.is_dir():
        raise click.UsageError(f"--hosts {hosts}: no such folder on this machine")

    place = LeakSearchScope(hosts.absolute()) if hosts is not None else None

    async def find(client: HttpClient) -> LeakSearchResult:
        if place is not None:
            return await leaks.find(client, place, only)
        local = (
            await _at_manager(client, only) if await leaks.has_local_drivers(client, only) else LeakSearchResult([], [])
        )
        remote = await leaks.find(client, LeakSearchScope(local=False), only)
        return LeakSearchResult(
            leaks.in_order((*local.leaks, *remote.leaks)),
            [*local.unknown, *remote.unknown],
            [*local.looked, *remote.looked],
        )

    found = connected(kubeconfig, find, timeout_seconds=_TIMEOUT_SECONDS)
    for why in found.unknown:
        print_note(f"could not search everywhere: {why}")
    if output in (JSON, YAML):
        print_value(found.leaks, output)
    elif found.leaks:
        rows = [(one.driver, one.what, one.id, one.name, one.state, one.machine, one.cluster) for one in found.leaks]
        print_table(_COLUMNS, rows, whole=output == WIDE)
    else:
        looked = ", ".join(found.looked) or "no driver"
        print_note(f"{'none found' if found.unknown else 'no leaks'}; searched: {looked}")
    raise SystemExit(_LEAKS if found.leaks else _UNKNOWN if found.unknown else 0)


async def _at_manager(client: HttpClient, only: tuple[str, ...]) -> LeakSearchResult:
    """Return the leaks that the manager finds on its own machine."""
    import msgspec

    from remuda.kube.errors import Forbidden, NotFound
    from remuda.providers.machine.leaks import LeakSearchResult

    path = f"{_PATH}?{urlencode([('driver', one) for one in only])}" if only else _PATH
    try:
        return msgspec.json.decode(await client.raw_get(path), type=LeakSearchResult)
    except (Forbidden, NotFound) as error:
        why = "it is not a manager" if isinstance(error, NotFound) else error.message
        unknown = f"servers on the manager's own machine: {client.access.server} does not list them: {why}"
        return LeakSearchResult([], [f"{unknown}; on that machine, use --hosts DATA_DIR/hosts"])
