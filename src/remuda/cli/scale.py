"""`remuda scale`: more machines, or fewer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import choices, cluster_edits, preview_table, progress, shell_completion
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP, namespace_option
from remuda.cli.output import TABLE, output_option, print_value
from remuda.cli.text_wrap import say

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.preview import Preview

Json = dict[str, Any]

_OTHERWISE = "scale its MachineDeployments: kubectl scale machinedeployment {name}-workers -n {namespace} --replicas N"


@click.command(name="scale", context_settings=HELP)
@click.argument("name", shell_complete=shell_completion.clusters)
@click.option("--servers", type=int, metavar="N", help="Of the pool with etcd and the control plane.")
@click.option("--workers", type=int, metavar="N", help="Of the pool that runs Pods only.")
@click.option("--pool", "pools", multiple=True, metavar="POOL=N", help="Of this pool. May be repeated.")
@namespace_option("cluster")
@progress.wait_options
@click.option("--dry-run", is_flag=True, help="Show what would happen, and change nothing.")
@output_option()
@kubeconfig_option
def command(
    name: str,
    servers: int | None,
    workers: int | None,
    pools: tuple[str, ...],
    namespace: str,
    wait: bool,
    timeout: float,
    dry_run: bool,
    output: str,
    kubeconfig: Path | None,
) -> None:
    """Change how many machines the pools of a cluster have, and nothing else of it.

    What it does to which machine is shown first. Members of etcd come and go one at a time; which worker goes is what
    Cluster API chooses: unhealthy ones, then the oldest. A manifest that is applied later says its own number.

    \b
      remuda scale prairie --workers 5 --wait
      remuda scale prairie --servers 3 --dry-run
      remuda scale prairie --pool web=4 --pool batch=0
    """
    from remuda.provisioning.declaration import BadRequest
    from remuda.provisioning.edits import Scale, quantities, scale_patch, scaled

    asked = Scale(servers=servers, workers=workers, pools=_numbers(pools))
    if asked == Scale():
        raise click.UsageError("say how many: --servers N, --workers N or --pool POOL=N")

    async def look(client: HttpClient) -> tuple[Json, dict[str, int], Preview | None]:
        cluster = await cluster_edits.find(client, namespace, name, _OTHERWISE)
        wanted = scaled(cluster, asked)
        patch = scale_patch(cluster, wanted)
        return cluster, wanted, await cluster_edits.preview(client, cluster, patch) if patch else None

    async def change(client: HttpClient) -> None:
        await cluster_edits.carry_out(client, cluster, lambda obj: scale_patch(obj, wanted))

    try:
        cluster, wanted, found = connected(kubeconfig, look)
        key = cluster["metadata"]["namespace"], name
        before = quantities(cluster)
        said = ", ".join(f"{pool} {before[pool]} → {count}" for pool, count in wanted.items() if before[pool] != count)
        if output != TABLE:
            print_value([] if found is None else [found], output)
        elif found is not None:
            preview_table.show(found, changes_only=True)
        if found is None:
            say(f"Cluster {'/'.join(key)} has so many already; nothing is changed")
        elif dry_run:
            say(f"{said}; nothing is changed (--dry-run)")
            return
        else:
            connected(kubeconfig, change, warn=lambda text: None)  # the server's were told while it was tried
            click.echo(f"Cluster {'/'.join(key)} scaled: {said}", err=output != TABLE)
    except BadRequest as error:
        raise click.ClickException(str(error)) from None
    if wait and not dry_run:
        progress.wait(kubeconfig, *key, timeout=timeout)
    elif found is not None:
        say(f"see how it gets on: remuda describe cluster {name} --watch")


def _numbers(pools: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for pool, text in choices.pairs(pools, "--pool"):
        if not (text.isascii() and text.isdigit()):
            raise click.UsageError(f"--pool {pool}={text}: it is POOL=N, and N a number of machines")
        found[pool] = int(text)
    return found
