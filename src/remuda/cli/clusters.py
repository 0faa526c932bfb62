"""Find a cluster by its id, its name, or NAMESPACE/NAME."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

_DERIVED = re.compile(r"c-[a-z2-7]{10}")  # id of a cluster without a declaration: no object has that name


class Found(msgspec.Struct, frozen=True):
    id: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.id})" if self.namespace else self.id


async def find(client: HttpClient, text: str) -> Found:
    """Return the cluster that the text names. Raises ClickException."""
    from remuda.kube.errors import Forbidden
    from remuda.kube.similar_names import did_you_mean, similar

    text = text.removeprefix("cluster/")
    found = await _by_id(client, text) if "/" not in text else None
    if found is not None:
        return found
    namespace, _, name = text.rpartition("/")
    try:
        known = await _all(client)
    except Forbidden:
        known = await _own(client, text)
    same = [one for one in known if one.name == name and namespace in ("", one.namespace)]
    if not same:
        existing = ", ".join(map(str, known)) or "none"
        close = did_you_mean(similar(name, [one.name for one in known]))
        raise click.ClickException(f"cluster {text} not found{close or '.'} Existing clusters: {existing}")
    if len(same) > 1:
        raise click.ClickException(
            f"several clusters are named {text}: {', '.join(map(str, same))}; use NAMESPACE/NAME or the id"
        )
    return same[0]


async def _by_id(client: HttpClient, id: str) -> Found | None:
    from remuda.kube.errors import Forbidden, NotFound
    from remuda.kube.names import dns1123_subdomain
    from remuda.provisioning.types import MANAGEMENT_CLUSTER

    if dns1123_subdomain(id):
        return None
    try:
        found = MANAGEMENT_CLUSTER.decode(await client.get(MANAGEMENT_CLUSTER.target, "", id))
    except NotFound:
        return Found(id, id) if _DERIVED.fullmatch(id) else None
    except Forbidden:
        return None
    return Found(id, found.spec.display_name or id, found.spec.fleet_workspace_name)


async def _own(client: HttpClient, text: str) -> list[Found]:
    """Return the clusters that the caller may reach, as the manager lists them."""
    from remuda.access.self_service_api import CLUSTERS
    from remuda.kube.errors import StatusError

    try:
        return msgspec.json.decode(await client.raw_get(CLUSTERS), type=_Items).items
    except StatusError:
        raise click.ClickException(
            f"no cluster with the id {text} that you have access to; you may not list clusters by name: ask an "
            "administrator for the id, for example c-m-abcd1234"
        ) from None


class _Items(msgspec.Struct):
    items: list[Found] = []


async def _all(client: HttpClient) -> list[Found]:
    """Return all clusters whose control planes are ours: declared ones, and those without a declaration."""
    from remuda.kube.client import list_all
    from remuda.providers.controlplane.identity import cluster_of, id_of
    from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE

    listing = await list_all(client, RKE_CONTROL_PLANE.target)
    planes = [RKE_CONTROL_PLANE.decode(item) for item in listing.items]
    found = [Found(id_of(plane), cluster_of(plane).name, cluster_of(plane).namespace) for plane in planes]
    return sorted(found, key=str)
