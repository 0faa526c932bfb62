"""`remuda upgrade`: upgrade Kubernetes in place."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import choices, cluster_edits, exit_codes, plan, progress, shell_completion
from remuda.cli.channels import channels_option
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP, namespace_option
from remuda.cli.output import TABLE, output_option, print_value
from remuda.cli.subjects import cluster_argument
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.preview import Preview

Json = dict[str, Any]

_OTHERWISE = (
    "its version is that of its RKEControlPlane: kubectl patch rkecontrolplane {name} -n {namespace} --type merge "
    '-p \'{{"spec": {{"kubernetesVersion": "VERSION"}}}}\''
)


@click.command(name="upgrade", context_settings=HELP)
@cluster_argument
@click.option(
    "--kubernetes-version",
    "version",
    default="",
    metavar="VERSION",
    shell_complete=shell_completion.versions,
    help="Target version, for example v1.36.4+k3s1, or a channel: stable, latest, v1.36.",
)
@click.option(
    "--allow-unknown-version", is_flag=True, help="Accept a version that no channel, artefact or cluster has."
)
@channels_option
@namespace_option("cluster")
@progress.wait_options
@click.option("--dry-run", is_flag=True, help="Show what would happen, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@output_option()
@kubeconfig_option
def command(
    name: str,
    version: str,
    allow_unknown_version: bool,
    channels_file: Path | None,
    namespace: str,
    wait: bool,
    timeout: float,
    dry_run: bool,
    yes: bool,
    output: str,
    kubeconfig: Path | None,
) -> None:
    """Upgrade a cluster to another version of its distribution, on the same machines.

    The command first shows its effect on each machine and, on a terminal, asks for confirmation. Servers are upgraded
    one by one, then workers, as many at a time as the cluster's upgradeStrategy allows. You can upgrade by one minor
    version at a time; downgrades and changes of the distribution are refused. Without --kubernetes-version, the command
    lists the versions that the server has artefacts of.

    \b
      remuda upgrade prairie
      remuda upgrade prairie --kubernetes-version v1.36.4+k3s1 --dry-run
      remuda upgrade prairie --kubernetes-version v1.36.4+k3s1 --yes --wait
    """
    from remuda.provisioning.edits import declared_version, version_patch

    offered = choices.offer(kubeconfig, channels_file) if version else None

    async def look(client: HttpClient) -> tuple[Json, Preview | None]:
        nonlocal version
        cluster = await cluster_edits.find(client, namespace, name, _OTHERWISE)
        if offered is None:
            raise click.UsageError(_choice(name, declared_version(cluster), await choices.versions(client)))
        version = _resolved(version, declared_version(cluster), offered)
        await _check_version(client, cluster, version)
        if version != declared_version(cluster) and not allow_unknown_version:
            await asyncio.to_thread(choices.check_exists, version, offered)
        patch = version_patch(cluster, version)
        return cluster, await cluster_edits.preview(client, cluster, patch) if patch else None

    async def change(client: HttpClient) -> None:
        await cluster_edits.carry_out(client, cluster, patch)

    def patch(obj: Json) -> list[Json]:
        # The preview above was of an upgrade from the earlier version.
        if declared_version(obj) not in (declared_version(cluster), version):
            raise click.ClickException(
                f"somebody set version {declared_version(obj)} in the meantime; run the command again"
            )
        return version_patch(obj, version)

    cluster, found = connected(kubeconfig, look)
    key = cluster["metadata"]["namespace"], name
    summary = f"{declared_version(cluster)} → {version}"
    if found is not None and offered is not None:
        choices.warn_of_missing_artefacts(version, offered)
    if output != TABLE:
        print_value([] if found is None else [found], output)
    elif found is not None:
        plan.show_preview(found)
    if found is None:
        print_note(f"Cluster {'/'.join(key)} already has version {version}; nothing to change")
    elif dry_run:
        print_note(f"{summary}; nothing was changed (--dry-run)")
        return
    else:
        if not yes and sys.stdin.isatty() and not click.confirm(f"Upgrade {summary}?", err=True):
            print_note("nothing was changed")
            raise SystemExit(exit_codes.NO)
        connected(kubeconfig, change, warn=lambda text: None)  # the dry run has shown them
        click.echo(f"Cluster {'/'.join(key)} is being upgraded: {summary}", err=output != TABLE)
    if wait and not dry_run:
        progress.wait(kubeconfig, *key, timeout=timeout)
    elif found is not None:
        print_note(f"to follow its progress: {progress.watch_command(*key)}")


def _resolved(text: str, present: str, offered: choices.Offer) -> str:
    """Return the target version; a channel is one of the cluster's distribution."""
    from remuda.providers.shared.distros.channels import is_channel

    return choices.version(text, choices.distribution_for(present if is_channel(text) else text, "", ""), offered)


async def _check_version(client: HttpClient, cluster: Json, version: str) -> None:
    """Check the version against those of the nodes; needed where no admission does. Raises ClickException."""
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
        raise click.ClickException(f"cannot upgrade cluster {metadata['name']} to {version}: {'; '.join(troubles)}")


def _choice(name: str, present: str, known: list[str]) -> str:
    """Return a message with the versions that a cluster can be upgraded to."""
    from remuda.providers.controlplane.rules.versions import read, transitions

    current = read(present)
    later = [one for one in known if current is not None and one != present and not transitions(present, one, (), "")]
    listed = "\n".join(f"  remuda upgrade {name} --kubernetes-version {one}" for one in later)
    if later:
        return f"cluster {name} has version {present}. The server has artefacts to upgrade to:\n{listed}"
    available = f"artefacts of {', '.join(known)} only" if known else "no artefacts"
    return (
        f"cluster {name} has version {present}. Choose the target with --kubernetes-version; the server has "
        f"{available} (`remuda artefacts list` shows them, `remuda artefacts add` adds more)"
    )
