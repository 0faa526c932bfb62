"""Clusters as people name them: by id, by name, or by namespace and name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

_DERIVED = re.compile(r"c-[a-z2-7]{10}")  # the id of a cluster nobody declared: there is no object of that name
_FORBIDDEN, _NOT_FOUND = 403, 404


class Found(msgspec.Struct, frozen=True):
    id: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.id})" if self.namespace else self.id


async def find(client: HttpClient, said: str) -> Found:
    """Raises ClickException in words."""
    from remuda.kube.errors import StatusError

    found = await _by_id(client, said) if "/" not in said else None
    if found is not None:
        return found
    namespace, _, name = said.rpartition("/")
    try:
        known = await _all(client)
    except StatusError as error:
        if error.code != _FORBIDDEN:
            raise
        known = await _own(client, said)
    same = [one for one in known if one.name == name and namespace in ("", one.namespace)]
    if not same:
        there = ", ".join(map(str, known)) or "none"
        raise click.ClickException(f"there is no cluster {said}; there are: {there}")
    if len(same) > 1:
        raise click.ClickException(f"several clusters are called {said}: {', '.join(map(str, same))}")
    return same[0]


async def _by_id(client: HttpClient, id: str) -> Found | None:
    from remuda.kube.errors import StatusError
    from remuda.kube.names import dns1123_subdomain
    from remuda.provisioning.types import MANAGEMENT_CLUSTER

    if dns1123_subdomain(id):
        return None
    try:
        found = MANAGEMENT_CLUSTER.decode(await client.get(MANAGEMENT_CLUSTER.target, "", id))
    except StatusError as error:
        if error.code == _NOT_FOUND:
            return Found(id, id) if _DERIVED.fullmatch(id) else None
        if error.code == _FORBIDDEN:
            return None
        raise
    return Found(id, found.spec.display_name or id, found.spec.fleet_workspace_name)


async def _own(client: HttpClient, said: str) -> list[Found]:
    """Those that the caller may reach, as the manager tells."""
    from remuda.access.own import CLUSTERS
    from remuda.kube.errors import StatusError

    try:
        return msgspec.json.decode(await client.raw_get(CLUSTERS), type=_Items).items
    except StatusError:
        raise click.ClickException(
            f"there is no cluster with the id {said} that you may reach; you may not look clusters up by their names: "
            "ask for the id, which is like c-m-abcd1234"
        ) from None


class _Items(msgspec.Struct):
    items: list[Found] = []


async def _all(client: HttpClient) -> list[Found]:
    """Whose control planes are ours: the declared ones, and those nobody declared."""
    from remuda.kube.client import list_all
    from remuda.providers.controlplane.identity import cluster_of, id_of
    from remuda.providers.controlplane.types import RKE_CONTROL_PLANE

    listing = await list_all(client, RKE_CONTROL_PLANE.target)
    planes = [RKE_CONTROL_PLANE.decode(item) for item in listing.items]
    found = [Found(id_of(plane), cluster_of(plane).name, cluster_of(plane).namespace) for plane in planes]
    return sorted(found, key=str)
