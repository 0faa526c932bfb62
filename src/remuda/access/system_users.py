"""System user of a cluster, for its `<cluster>-kubeconfig`.

It is deleted with the cluster, and its token and its grant are deleted with it. Its name is derived from that of the
Cluster, as in Rancher.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

import msgspec

from remuda.access.types import USER
from remuda.kube.client import Client
from remuda.kube.core import NAMESPACES
from remuda.kube.errors import NotFound
from remuda.kube.objects import Key, Object
from remuda.providers.controlplane.identity import cluster_of, derived_id
from remuda.providers.shared.types.controlplane import RKEControlPlane
from remuda.runtime.caches import Informer
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Outcome
from remuda.runtime.steps import step

NAME = "systemuser"
CLUSTER = "remuda.dev/cluster"  # annotation of a system user, and of a namespace made for its cluster: whose it is

DROP_NAMESPACE = step(
    "systemuser.delete-namespace", "deletes the namespace of a deleted cluster without a provisioning Cluster"
)
DROP_USER = step("systemuser.delete", "deletes the system user of a deleted cluster")

_BY_USER = "system user"


def principal(cluster: Key) -> str:
    return f"system://provisioning/{cluster.namespace}/{cluster.name}"


def system_user(cluster: Key) -> str:
    digest = hashlib.sha256(principal(cluster).encode()).digest()
    return "u-" + base64.b32encode(digest).decode().lower()[:10]


def index_by_user(planes: Informer[RKEControlPlane]) -> Callable[[str], list[Key]]:
    """Index the control planes by their system user; return the lookup function."""
    planes.index(_BY_USER, lambda plane: (system_user(cluster_of(plane)),))
    return lambda user: planes.keys(_BY_USER, user)


class SystemUserController:
    def __init__(self, manager: Manager, planes: Informer[RKEControlPlane]) -> None:
        self._client = manager.client
        self._users = manager.caches.of(USER)
        self._planes_of = index_by_user(planes)
        controller = manager.controller(NAME, USER, self.reconcile)
        controller.watch(planes, lambda plane: (Key("", system_user(cluster_of(plane))),), facts=cluster_of)

    async def reconcile(self, key: Key) -> Outcome:
        user = self._users.get(*key)
        if user is None or user.metadata.deleting:
            return DONE
        namespace, _, name = user.metadata.annotations.get(CLUSTER, "").partition("/")
        cluster = Key(namespace, name)
        if system_user(cluster) != key.name or self._planes_of(key.name):
            return DONE  # not a system user, or its cluster exists
        # Delete the User last: its annotation is the only record of which cluster the namespace belonged to.
        await self._drop_namespace(cluster)
        async with DROP_USER:
            await self._client.delete(USER.target, "", key.name, uid=user.metadata.uid)
        return DONE

    async def _drop_namespace(self, cluster: Key) -> None:
        """Delete the namespace if it was created for this cluster; a declared cluster's is deleted with its management
        Cluster."""
        found = await _namespace(self._client, derived_id(cluster))
        if found is None or found.metadata.deleting or found.metadata.annotations.get(CLUSTER) != str(cluster):
            return
        async with DROP_NAMESPACE:
            await self._client.delete(NAMESPACES, "", found.metadata.name, uid=found.metadata.uid)


async def _namespace(client: Client, name: str) -> Object | None:
    try:
        return msgspec.json.decode(await client.get(NAMESPACES, "", name), type=Object)
    except NotFound:
        return None
