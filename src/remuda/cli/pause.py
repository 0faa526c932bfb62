"""`remuda pause` and `remuda resume`: stop and restart the work of controllers on a cluster.

Both set `spec.paused` of the Cluster of Cluster API, as Rancher and `clusterctl move` do. The declared Cluster has no
such field, and its controller never changes the other one's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP, namespace_option
from remuda.cli.subjects import CommandSubject, subject_argument
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.kube.objects import Key


@click.command(name="pause", context_settings=HELP)
@subject_argument("cluster")
@namespace_option("cluster")
@kubeconfig_option
def command(subject: CommandSubject, namespace: str, kubeconfig: Path | None) -> None:
    """Pause a cluster: controllers change nothing of it until `remuda resume`.

    The cluster keeps running. Changes that you apply take effect when you resume it, and so does a deletion. While it
    is paused, failed machines are not replaced and its reported state may be out of date.

    \b
      remuda pause prairie
      remuda resume prairie
    """
    key, changed = _set_paused(kubeconfig, subject.name, namespace, wanted=True)
    click.echo(f"Cluster {key} {'paused' if changed else 'is paused already'}")
    print_note(f"to resume it: remuda resume {key.name} -n {key.namespace}")


@click.command(name="resume", context_settings=HELP)
@subject_argument("cluster")
@namespace_option("cluster")
@kubeconfig_option
def resume(subject: CommandSubject, namespace: str, kubeconfig: Path | None) -> None:
    """Resume a cluster that was paused: controllers continue where they stopped.

    \b
      remuda resume prairie
    """
    key, changed = _set_paused(kubeconfig, subject.name, namespace, wanted=False)
    click.echo(f"Cluster {key} {'resumed' if changed else 'is not paused'}")


def _set_paused(kubeconfig: Path | None, name: str, namespace: str, *, wanted: bool) -> tuple[Key, bool]:
    """Return the cluster, and whether anything was changed. Raises ClickException."""

    async def work(client: HttpClient) -> tuple[Key, bool]:
        import msgspec

        from remuda.capi import names
        from remuda.capi.types import CLUSTER as CAPI_CLUSTER
        from remuda.cli.describe import no_such_cluster
        from remuda.kube.errors import NotFound
        from remuda.kube.objects import Key
        from remuda.provisioning import tree_loader

        try:
            key = Key(await tree_loader.find(client, namespace, name), name)
            found = msgspec.json.decode(await client.get(CAPI_CLUSTER.target, *key))
        except tree_loader.NoSuchCluster as error:
            raise no_such_cluster(error) from None
        except NotFound:
            raise click.ClickException(
                f"cluster {name} has no Cluster of {names.GROUP} yet, so there is nothing to pause: remuda why {name}"
            ) from None
        marked = names.PAUSED in (found["metadata"].get("annotations") or {})
        paused = bool(found["spec"].get("paused")) or marked
        if paused is wanted:
            return key, False
        patch: dict[str, Any] = {"spec": {"paused": wanted}}
        if marked:
            patch["metadata"] = {"annotations": {names.PAUSED: None}}
        await client.patch(CAPI_CLUSTER.target, *key, patch)
        return key, True

    return connected(kubeconfig, work)
