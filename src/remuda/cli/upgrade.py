"""`remuda upgrade`: another version of Kubernetes, in place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import choices, cluster_edits, exit_codes, preview_table, progress, shell_completion
from remuda.cli.connection import connected, kubeconfig_option, show_warning
from remuda.cli.options import HELP, namespace_option
from remuda.cli.output import TABLE, output_option, print_value
from remuda.cli.text_wrap import say

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.preview import Preview

Json = dict[str, Any]

_OTHERWISE = (
    "its version is that of its RKEControlPlane: kubectl patch rkecontrolplane {name} -n {namespace} --type merge "
    '-p \'{{"spec": {{"kubernetesVersion": "VERSION"}}}}\''
)


@click.command(name="upgrade", context_settings=HELP)
@click.argument("name", shell_complete=shell_completion.clusters)
@click.option("--kubernetes-version", "version", default="", metavar="VERSION", help="v1.36.4+k3s1, for example.")
@namespace_option("cluster")
@progress.wait_options
@click.option("--dry-run", is_flag=True, help="Show what would happen, and change nothing.")
@click.option("--yes", is_flag=True, help="Ask nothing.")
@output_option()
@kubeconfig_option
def command(
    name: str,
    version: str,
    namespace: str,
    wait: bool,
    timeout: float,
    dry_run: bool,
    yes: bool,
    output: str,
    kubeconfig: Path | None,
) -> None:
    """Bring a cluster to another version of its distribution, on the same machines.

    What it does to each machine is shown first, and asked about on a terminal: servers one by one, then workers, as
    many at a time as the cluster's upgradeStrategy says. One minor version at a time, never back, never to another
    distribution. Without --kubernetes-version it lists those whose artefacts are at hand.

    \b
      remuda upgrade prairie
      remuda upgrade prairie --kubernetes-version v1.36.4+k3s1 --dry-run
      remuda upgrade prairie --kubernetes-version v1.36.4+k3s1 --yes --wait
    """
    from remuda.provisioning.edits import declared_version, version_patch

    if version:
        choices.checked_version(version)

    async def look(client: HttpClient) -> tuple[Json, Preview | None]:
        cluster = await cluster_edits.find(client, namespace, name, _OTHERWISE)
        if not version:
            raise click.UsageError(_choice(name, declared_version(cluster), await choices.versions(client)))
        await _judge(client, cluster, version)
        patch = version_patch(cluster, version)
        return cluster, await cluster_edits.preview(client, cluster, patch) if patch else None

    async def change(client: HttpClient) -> None:
        await cluster_edits.carry_out(client, cluster, patch)

    def patch(obj: Json) -> list[Json]:
        if declared_version(obj) not in (declared_version(cluster), version):
            raise click.ClickException(f"somebody has asked for {declared_version(obj)} meanwhile: look again")
        return version_patch(obj, version)

    cluster, found = connected(kubeconfig, look)
    key = cluster["metadata"]["namespace"], name
    said = f"{declared_version(cluster)} → {version}"
    if found is not None:
        _tell_artefacts(version, choices.at_hand(kubeconfig))
    if output != TABLE:
        print_value([] if found is None else [found], output)
    elif found is not None:
        preview_table.show(found)
    if found is None:
        say(f"Cluster {'/'.join(key)} is declared as {version} already; nothing is changed")
    elif dry_run:
        say(f"{said}; nothing is changed (--dry-run)")
        return
    else:
        if not yes and sys.stdin.isatty() and not click.confirm(f"{said}: go on?", err=True):
            say("nothing is changed")
            raise SystemExit(exit_codes.NO)
        connected(kubeconfig, change, warn=lambda text: None)  # the server's were told while it was tried
        click.echo(f"Cluster {'/'.join(key)} goes {said}", err=output != TABLE)
    if wait and not dry_run:
        progress.wait(kubeconfig, *key, timeout=timeout)
    elif found is not None:
        say(f"see how it gets on: remuda describe cluster {name} --watch")


async def _judge(client: HttpClient, cluster: Json, version: str) -> None:
    """By what its nodes run; also where the management plane has no admission. Raises ClickException."""
    import msgspec

    from remuda.capi import names
    from remuda.capi.types import MACHINE
    from remuda.kube.client import list_all
    from remuda.provisioning.edits import version_troubles

    metadata = cluster["metadata"]
    label = f"{names.CLUSTER_NAME}={names.label_value(metadata['name'])}"
    listing = await list_all(client, MACHINE.target, metadata["namespace"], label_selector=label)
    machines = [msgspec.json.decode(value) for value in listing.items]
    if troubles := version_troubles(cluster, version, machines):
        raise click.ClickException(f"the cluster {metadata['name']} cannot go there: {'; '.join(troubles)}")


def _choice(name: str, present: str, known: list[str]) -> str:
    """Return a message with the versions that a cluster can be upgraded to."""
    from remuda.providers.controlplane.rules.versions import read, transitions

    was = read(present)
    later = [one for one in known if was is not None and one != present and not transitions(present, one, (), "")]
    listed = "\n".join(f"  remuda upgrade {name} --kubernetes-version {one}" for one in later)
    if later:
        return f"the cluster {name} is of {present}. Artefacts are at hand to go to:\n{listed}"
    there = f"of {', '.join(known)} only" if known else "of none"
    return (
        f"the cluster {name} is of {present}. Say with --kubernetes-version where it shall go; artefacts are at hand "
        f"{there} (`remuda artefacts add` brings more, `remuda artefacts list` shows them)"
    )


def _tell_artefacts(version: str, known: list[str]) -> None:
    if known and version not in known:
        show_warning(
            f"no artefacts of {version} are at hand here ({', '.join(known)} are): nodes have to find them elsewhere, "
            "or `remuda artefacts add` brings them"
        )
