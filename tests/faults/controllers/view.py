"""What a user with a watch on everything sees of a management cluster, while its processes come and go.

Waiting is looking again whenever anything has changed. A watch that breaks with the server is taken up again, so what
is seen is late at most, and Machines are seen in the order they were written.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK, MACHINE_SET, Machine
from remuda.kube import conditions
from remuda.kube.client import Client, Target
from remuda.kube.errors import AlreadyExists, NotFound, StatusError
from remuda.kube.objects import Object
from remuda.lab.simulator.kinds import FAMILIES
from remuda.runtime.caches import Caches, Informer

Json = dict[str, Any]
T = TypeVar("T")

PATIENCE_SECONDS = 600.0  # for the slowest wait while processes are killed on a busy machine
SECRETS = Target("v1", "secrets")
_CORE = (CLUSTER, MACHINE_DEPLOYMENT, MACHINE_SET, MACHINE, MACHINE_HEALTH_CHECK)
_TRY_AGAIN_SECONDS = 0.05
_OF_EVERY_NAMESPACE = {("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")}
_RECORDS = ("events",)  # they end by themselves


class View:
    def __init__(self, client: Client) -> None:
        self.client = client
        self._caches = Caches(client)
        self.clusters = self._caches.of(CLUSTER)
        self.deployments = self._caches.of(MACHINE_DEPLOYMENT)
        self.sets = self._caches.of(MACHINE_SET)
        self.machines = self._caches.of(MACHINE)
        self.checks = self._caches.of(MACHINE_HEALTH_CHECK)
        self._others: list[Informer[Object]] = []
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Once the kinds are defined."""
        await self._caches.start()
        targets = [kind.target for family in FAMILIES for kind in family.kinds]
        self._others = [await self._caches.ensure(target) for target in (*targets, SECRETS)]
        for informer in (*(self._caches.of(kind) for kind in _CORE), *self._others):
            informer.listen(self._notice)

    def _notice(self, before: Object | None, after: Object | None, initial: bool) -> None:
        self._changed.set()

    async def close(self) -> None:
        await self._caches.close()

    async def until(self, holds: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Raises TimeoutError that says what never came."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"not within {seconds:g} s: {what}\n{self.summary()}") from None

    def members(self, namespace: str, cluster: str) -> list[Machine]:
        return [one for one in self.machines.all(namespace) if one.spec.cluster_name == cluster]

    def names(self, namespace: str) -> list[str]:
        """Of everything that is watched and still there."""
        informers: list[Informer[Any]] = [*(self._caches.of(kind) for kind in _CORE), *self._others]
        return [f"{one.target.plural}/{obj.metadata.name}" for one in informers for obj in one.all(namespace)]

    def summary(self) -> str:
        """For a person who must find out why something did not happen."""
        found: list[Any] = [*self.clusters.all(), *self.deployments.all(), *self.sets.all(), *self.machines.all()]
        others = [f"{one.target.plural} {obj.key}" for one in self._others for obj in one.all()]
        return "\n".join([*(_summary(obj) for obj in found), ", ".join(others)])

    # what users do, as often as it takes

    async def create(self, target: Target, namespace: str, obj: Json) -> None:
        await insist(lambda: or_done(AlreadyExists, self.client.create(target, namespace, obj)))

    async def patch(self, target: Target, namespace: str, name: str, patch: Json) -> None:
        await insist(lambda: self.client.patch(target, namespace, name, patch))

    async def delete(self, target: Target, namespace: str, name: str) -> None:
        await insist(lambda: or_done(NotFound, self.client.delete(target, namespace, name)))


async def left_in(client: Client, namespace: str) -> list[str]:
    """Everything there is in a namespace, of whatever kind the server knows, but what every namespace has."""
    found: list[str] = []
    for target in await insist(lambda: _namespaced(client)):
        listing = await insist(partial(client.list, target, namespace))
        names = [json.loads(item)["metadata"]["name"] for item in listing.items]
        found += [f"{target.plural}/{name}" for name in names if (target.plural, name) not in _OF_EVERY_NAMESPACE]
    return found


async def insist(action: Callable[[], Awaitable[T]], seconds: float = PATIENCE_SECONDS) -> T:
    """Tries until the server answers."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                return await action()
            except StatusError as error:
                if error.code < 500:
                    raise
            await asyncio.sleep(_TRY_AGAIN_SECONDS)


async def or_done(done: type[StatusError], action: Awaitable[bytes]) -> None:
    """Await `action`. `done` is the error which shows that an earlier attempt succeeded and its answer was lost."""
    with contextlib.suppress(done):
        await action


async def _namespaced(client: Client) -> list[Target]:
    """Every resource that can be listed in a namespace, once, in its preferred version."""
    groups = json.loads(await client.raw_get("/apis"))["groups"]
    versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]
    found = []
    for version in versions:
        path = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        for resource in json.loads(await client.raw_get(path))["resources"]:
            if resource["namespaced"] and "list" in resource["verbs"] and resource["name"] not in _RECORDS:
                found.append(Target(version, resource["name"]))
    return found


def _summary(obj: Any) -> str:
    told = [f"{one.type}={one.status}" for one in obj.status.conditions]
    unwell = [one.message for one in obj.status.conditions if one.type in ("Available", "Deleting") and one.message]
    going = " (going)" if obj.metadata.deleting else ""
    return f"{type(obj).__name__} {obj.key}{going}: {' '.join(told)}; {' / '.join(unwell)}"


def available(machine: Machine) -> bool:
    return conditions.is_true(machine.status.conditions, "Available") and not machine.metadata.deleting
