"""Edits of a declared Cluster by commands.

The effect is shown first, including the server's validation. The change is then computed from the current object, and
retried on a conflict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.describe import no_such_cluster

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.preview import Preview

Json = dict[str, Any]
Change = Callable[[Json], list[Json]]  # JSON patch of the Cluster; empty: nothing to change

_TRIES = 8
_INVALID = 422


async def find(client: HttpClient, namespace: str, name: str, otherwise: str) -> Json:
    """Return the declared Cluster. `otherwise`: advice for a cluster without one. Raises ClickException."""
    from remuda.kube.errors import NotFound
    from remuda.provisioning import tree_loader
    from remuda.provisioning.types import CLUSTER

    try:
        place = await tree_loader.find(client, namespace, name)
        return _decoded(await client.get(CLUSTER.target, place, name))
    except tree_loader.NoSuchCluster as error:
        raise no_such_cluster(error) from None
    except NotFound:
        raise click.ClickException(
            f"cluster {name} has no Cluster of {CLUSTER.group}, only Cluster API objects: "
            f"{otherwise.format(namespace=place, name=name)}"
        ) from None


async def preview(client: HttpClient, cluster: Json, patch: list[Json]) -> Preview:
    """Return what the change would do. Raises ClickException with all errors of the server."""
    from remuda.kube.patches import apply_json_patch
    from remuda.provisioning.preview_loader import PreviewRefused, Previews

    wanted = apply_json_patch(cluster, patch)
    metadata = {key: cluster["metadata"][key] for key in ("name", "namespace")}
    manifest = {**{key: wanted[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata}
    try:
        (found,) = await Previews(client, [manifest]).make()
    except PreviewRefused as refused:
        raise click.ClickException(f"the server refused the change; nothing was changed:\n{refused}") from None
    return found


async def carry_out(client: HttpClient, cluster: Json, change: Change) -> bool:
    """Apply the change; return whether there was anything to change. Raises BadRequest of `change`, and StatusError."""
    from remuda.cli.manifest_apply import MANAGER
    from remuda.kube.errors import Conflict, StatusError
    from remuda.provisioning.types import CLUSTER

    place = (CLUSTER.target, cluster["metadata"]["namespace"], cluster["metadata"]["name"])
    for left in reversed(range(_TRIES)):
        patch = change(cluster)
        if not patch:
            return False
        try:
            await client.patch(*place, patch, kind="json", field_manager=MANAGER)
            return True
        except StatusError as error:
            # Patches contain `test` operations: if the object has changed meanwhile, the server answers 422.
            if not left or not (isinstance(error, Conflict) or error.code == _INVALID):
                raise
            seen, cluster = cluster, _decoded(await client.get(*place))
            if cluster["metadata"]["uid"] != seen["metadata"]["uid"]:
                raise click.ClickException(
                    f"cluster {place[2]} was deleted and created again in the meantime; run the command again"
                ) from None
            if error.code == _INVALID and change(cluster) == patch:
                raise  # the object is unchanged, so the server refuses the change itself
    raise AssertionError("unreachable")


def _decoded(value: bytes) -> Json:
    import msgspec

    found: Json = msgspec.json.decode(value)
    return found
