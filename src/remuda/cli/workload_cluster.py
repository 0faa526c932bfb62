"""Detection of a kubeconfig that is not one of a management plane: users mix it up with that of a cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

_PROXIED = re.compile(r"/k8s/clusters/([^/]+)/?$")


class ClusterNotFound(click.ClickException):
    """No cluster has the name that a command was given."""


async def refuse_workload_cluster(client: HttpClient) -> None:
    """Raise ClickException if the server is no management plane. Used after something was not found there."""
    import msgspec

    from remuda.cli.kinds import CLUSTERS
    from remuda.kube.errors import StatusError

    try:
        groups = msgspec.json.decode(await client.raw_get("/apis")).get("groups") or ()
    except StatusError:
        return
    if {one.get("name") for one in groups} & set(CLUSTERS):
        return
    access = client.access
    proxied = _PROXIED.search(access.server)
    what = f"the workload cluster {proxied[1]}" if proxied else "a Kubernetes cluster without Remuda"
    raise click.ClickException(
        f"{access.origin} is the kubeconfig of {what} ({access.server}). This command needs that of the management "
        "plane: choose it with --kubeconfig FILE or $KUBECONFIG"
    )
