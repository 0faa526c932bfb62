"""The controller of protected Secrets (`protection`): each is released when nothing needs it any more.

A state Secret is needed while its machine or its RKECluster exists. A credential belongs to a user, who can delete it
at any time; only the deletion of its whole namespace waits until no machine and no RKECluster names it. The server is
asked, not a cache: a driver that has not been found yet has no cache of its machines.
"""

from __future__ import annotations

from remuda.kube.client import Target, list_all
from remuda.kube.core import SECRET, Secret
from remuda.kube.errors import NotFound
from remuda.kube.objects import Key, Kind, Object, OwnerReference
from remuda.providers.shared import credentials
from remuda.providers.shared.jobs import protection
from remuda.providers.shared.jobs.job_context import JobContext
from remuda.providers.shared.jobs.protection import FINALIZER
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.providers.shared.types.machine import NODE_DRIVER, machine_kind
from remuda.runtime.outcome import DONE, Outcome, Requeue

CONTROLLER = "protectedsecret"

_NEEDED_SECONDS = 5.0  # between two checks of a Secret that is being deleted and still needed
_MISSING_SECONDS = 60.0  # between two checks for a deleted credential that is in use
_HEAD = Kind("", "", "", Object)


class SecretGuard:
    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._client = context.client
        self._credentials: set[Key] = set()  # known ones: users never create state Secrets again
        self._drivers = context.manager.caches.of(NODE_DRIVER)
        context.manager.controller(CONTROLLER, SECRET, self.reconcile, concurrency=5, informer=context.protected)

    async def reconcile(self, key: Key) -> Outcome:
        secret = self._context.protected.get(*key)
        if secret is None:
            return await self._replaced(key) if key in self._credentials else DONE
        if secret.metadata.controller is None:
            self._credentials.add(key)
        if not secret.metadata.deleting or FINALIZER not in secret.metadata.finalizers:
            return DONE
        if await self._needed(secret):
            return Requeue(_NEEDED_SECONDS, "the Secret is needed to remove a server")
        await protection.release(self._client, key)
        return DONE

    async def _replaced(self, key: Key) -> Outcome:
        """Protect a deleted credential again if a user recreates it: without our label, no watch reports it."""
        if not await self._in_use(key):
            self._credentials.discard(key)
            return DONE
        if await self._context.protect(key):
            return DONE
        return Requeue(_MISSING_SECONDS, "machines refer to the Secret, but it does not exist")

    async def _needed(self, secret: Secret) -> bool:
        owner, namespace = secret.metadata.controller, secret.metadata.namespace
        if owner is not None:
            return await self._exists(owner, namespace)
        return await self._context.terminating(namespace) and await self._in_use(secret.key)

    async def _exists(self, owner: OwnerReference, namespace: str) -> bool:
        try:
            value = await self._client.get(_target(owner), namespace, owner.name)
        except NotFound:
            return False
        return _HEAD.decode(value).metadata.uid == owner.uid

    async def _in_use(self, key: Key) -> bool:
        namespace = credentials.users_of(key.namespace)
        for driver in self._drivers.all():
            kind = machine_kind(driver.metadata.name)
            for value in await self._list(kind.target, namespace):
                machine = kind.decode(value)
                reference = machine.spec.common.cloud_credential_secret_name
                if credentials.names(reference, machine.metadata.namespace, key):
                    return True
        for value in await self._list(RKE_CLUSTER.target, namespace):
            cluster = RKE_CLUSTER.decode(value)
            wanted = cluster.spec.infrastructure
            reference = wanted.cloud_credential_secret_name if wanted is not None else ""
            if credentials.names(reference, cluster.metadata.namespace, key):
                return True
        return False

    async def _list(self, target: Target, namespace: str) -> list[bytes]:
        try:
            return list((await list_all(self._client, target, namespace)).items)
        except NotFound:
            return []  # kinds of a driver that is switched off


def _target(owner: OwnerReference) -> Target:
    return Target(owner.api_version, f"{owner.kind.lower()}s")
