"""`remuda scale`: change the number of machines in the pools of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import choices, cluster_edits, plan, progress
from remuda.cli.confirmation import confirm_losses, yes_option
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP, namespace_option
from remuda.cli.output import TABLE, output_option, print_value
from remuda.cli.subjects import cluster_argument
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.preview import Preview

Json = dict[str, Any]

_OTHERWISE = "scale its MachineDeployments: kubectl scale machinedeployment {name}-workers -n {namespace} --replicas N"


@click.command(name="scale", context_settings=HELP)
@cluster_argument
@click.option("--servers", type=int, metavar="N", help="Number of machines in the control plane pool.")
@click.option("--workers", type=int, metavar="N", help="Number of machines in the worker pool.")
@click.option("--pool", "pools", multiple=True, metavar="POOL=N", help="Number of machines in this pool. Repeatable.")
@namespace_option("cluster")
@progress.wait_options
@click.option("--dry-run", is_flag=True, help="Show what would happen, and change nothing.")
@yes_option
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
    yes: bool,
    output: str,
    kubeconfig: Path | None,
) -> None:
    """Change the number of machines in the pools of a cluster, and nothing else.

    The command first shows its effect on each machine, and asks before it deletes any; without a terminal, it deletes
    machines only with --yes (otherwise exit code 3). etcd members are added and removed one at a time. Cluster API
    chooses the workers to delete: unhealthy ones first, then the oldest. A manifest that you apply later sets its own
    numbers again.

    \b
      remuda scale prairie --workers 5 --wait
      remuda scale prairie --servers 3 --dry-run
      remuda scale prairie --pool web=4 --pool batch=0 --yes
    """
    from remuda.provisioning.declaration import BadRequest
    from remuda.provisioning.edits import Scale, quantities, scale_patch, scaled

    asked = Scale(servers=servers, workers=workers, pools=_numbers(pools))
    if asked == Scale():
        raise click.UsageError("missing number: set --servers N, --workers N or --pool POOL=N")

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
        summary = ", ".join(
            f"{pool} {before[pool]} → {count}" for pool, count in wanted.items() if before[pool] != count
        )
        if output != TABLE:
            print_value([] if found is None else [found], output)
        elif found is not None:
            plan.show_preview(found, changes_only=True)
        if found is None:
            print_note(f"Cluster {'/'.join(key)} already has these numbers; nothing to change")
        elif dry_run:
            print_note(f"{summary}; nothing was changed (--dry-run)")
            return
        else:
            confirm_losses(plan.losses([found]), yes=yes)
            connected(kubeconfig, change, warn=lambda text: None)  # the dry run has shown them
            click.echo(f"Cluster {'/'.join(key)} scaled: {summary}", err=output != TABLE)
    except BadRequest as error:
        raise click.ClickException(str(error)) from None
    if wait and not dry_run:
        progress.wait(kubeconfig, *key, timeout=timeout)
    elif found is not None:
        print_note(f"to follow its progress: {progress.watch_command(*key)}")


def _numbers(pools: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for pool, text in choices.pairs(pools, "--pool"):
        if not (text.isascii() and text.isdigit()):
            raise click.UsageError(f"--pool {pool}={text}: must be POOL=N, where N is a number of machines")
        found[pool] = int(text)
    return found
