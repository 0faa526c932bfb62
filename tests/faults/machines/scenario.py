"""The life of one machine of the driver `sim`, told to a management plane that keeps dying.

Its first attempt fails, somebody asks for another, it becomes ready; its removal fails once, somebody asks again, and
it goes. Then its driver goes, with its kinds. Every request is sent again until the server answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube.client import Target
from remuda.kube.core import JOBS, SECRETS
from remuda.kube.errors import AlreadyExists, Conflict, NotFound, StatusError, ignore_not_found
from remuda.kube.http import HttpClient
from remuda.kube.objects import Kind
from remuda.providers.shared.jobs.budget import RETRY
from remuda.providers.shared.names import machine_log
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.providers.shared.types.machine import NODE_DRIVER, machine_kind

Json = dict[str, Any]
T = TypeVar("T")

SIM = machine_kind("sim")
NAMESPACE = "default"
PATIENCE_SECONDS = 960.0
_RETRY_SECONDS = 0.2


class RetryingClient:
    def __init__(self, client: HttpClient) -> None:
        self._client = client

    async def until_answered(self, act: Callable[[], Awaitable[T]]) -> T:
        """Once somebody answers; what the answer is, is another matter."""
        while True:
            try:
                return await act()
            except StatusError as error:
                if error.code < 500 and error.code != 429:
                    raise
            except (OSError, TimeoutError):
                pass
            await asyncio.sleep(_RETRY_SECONDS)

    async def make(self, target: Target, namespace: str, kind: str, name: str, **fields: Any) -> None:
        metadata = {"name": name, **fields.pop("metadata", {})}
        obj = {"apiVersion": target.api_version, "kind": kind, "metadata": metadata, **fields}
        while True:
            try:
                await self.until_answered(lambda: self._client.create(target, namespace, obj))
                return
            except AlreadyExists:  # the answer to an earlier attempt was lost
                return
            except NotFound:  # its kind is not served yet
                pass
            await asyncio.sleep(_RETRY_SECONDS)

    async def get(self, target: Target, namespace: str, name: str) -> Json | None:
        try:
            found: Json = msgspec.json.decode(
                await self.until_answered(lambda: self._client.get(target, namespace, name))
            )
        except NotFound:
            return None
        return found

    async def until(self, target: Target, namespace: str, name: str, holds: Callable[[Json | None], object]) -> None:
        found = None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not holds(found := await self.get(target, namespace, name)):
                    await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError:
            raise AssertionError(f"not within {PATIENCE_SECONDS} s: {target.plural} {name}: {found}") from None

    async def patch(self, target: Target, namespace: str, name: str, patch: Json) -> None:
        await self.until_answered(lambda: self._client.patch(target, namespace, name, patch))

    async def patch_status(self, target: Target, namespace: str, name: str, status: Json) -> None:
        patch = {"status": status}
        await self.until_answered(lambda: self._client.patch(target, namespace, name, patch, subresource="status"))

    async def delete(self, target: Target, namespace: str, name: str) -> None:
        with ignore_not_found():
            await self.until_answered(lambda: self._client.delete(target, namespace, name))

    async def names(self, target: Target) -> list[str]:
        listing = await self.until_answered(lambda: self._client.list(target, NAMESPACE))
        return [msgspec.json.decode(item)["metadata"]["name"] for item in listing.items]


async def prepare(retrying_client: RetryingClient) -> None:
    """A Cluster that is as good as there, bootstrap data that nobody reads, and a credential."""
    await retrying_client.make(RKE_CLUSTER.target, NAMESPACE, RKE_CLUSTER.name, "c", spec={})
    ref = {"apiGroup": RKE_CLUSTER.group, "kind": RKE_CLUSTER.name, "name": "c"}
    await retrying_client.make(CLUSTER.target, NAMESPACE, CLUSTER.name, "c", spec={"infrastructureRef": ref})
    await retrying_client.make(
        SECRETS, NAMESPACE, "Secret", "data", stringData={"value": "#!/bin/sh\n", "format": "script"}
    )
    await retrying_client.make(SECRETS, NAMESPACE, "Secret", "cloud", stringData={"token": "good"})


async def live(retrying_client: RetryingClient, name: str) -> None:
    spec = {
        "clusterName": "c",
        "bootstrap": {"dataSecretName": "data"},
        "infrastructureRef": {"apiGroup": SIM.group, "kind": SIM.name, "name": name},
    }
    common = {"cloudCredentialSecretName": "cloud"}
    await retrying_client.make(
        SIM.target, NAMESPACE, SIM.name, name, spec={"failures": 1, "removeFailures": 1, "common": common}
    )
    await retrying_client.make(MACHINE.target, NAMESPACE, MACHINE.name, name, spec=spec)
    await retrying_client.until(SIM.target, NAMESPACE, name, lambda obj: _said(obj, "CreateJob") == "False")
    await retrying_client.patch(SIM.target, NAMESPACE, name, {"metadata": {"annotations": {RETRY: "now"}}})
    await retrying_client.until(SIM.target, NAMESPACE, name, lambda obj: _said(obj, "Ready") == "True")
    await retrying_client.delete(MACHINE.target, NAMESPACE, name)
    await retrying_client.until(SIM.target, NAMESPACE, name, lambda obj: _said(obj, "DeleteJob") == "False")
    await retrying_client.patch(SIM.target, NAMESPACE, name, {"metadata": {"annotations": {RETRY: "again"}}})
    await retrying_client.until(SIM.target, NAMESPACE, name, lambda obj: obj is None)
    await retrying_client.until(MACHINE.target, NAMESPACE, name, lambda obj: obj is None)


async def retire_driver(retrying_client: RetryingClient) -> None:
    """Delete the driver and wait until that object is gone. A program that dies now registers the driver again."""
    before = await retrying_client.get(NODE_DRIVER.target, "", "sim")
    assert before is not None
    uid = before["metadata"]["uid"]
    await retrying_client.delete(NODE_DRIVER.target, "", "sim")
    await retrying_client.until(NODE_DRIVER.target, "", "sim", lambda obj: obj is None or obj["metadata"]["uid"] != uid)


async def left(retrying_client: RetryingClient, name: str) -> list[str]:
    """Return the objects of a deleted machine that still exist, except its logs, which are kept."""
    found = [one for target in (JOBS, SECRETS) for one in await retrying_client.names(target) if one.startswith(name)]
    return [one for one in found if one != machine_log(name)]


async def ask_again(retrying_client: RetryingClient, client: HttpClient, kind: Kind[Any], namespace: str) -> None:
    """As somebody who asks for another attempt as soon as one has failed."""
    with contextlib.suppress(NotFound, AlreadyExists, Conflict):  # its kind comes yet; or it has just gone
        listing = await retrying_client.until_answered(lambda: client.list(kind.target, namespace))
        for obj in map(msgspec.json.decode, listing.items):
            if (obj.get("status") or {}).get("lastFailureTime"):
                patch = {"metadata": {"annotations": {RETRY: f"{obj['status'].get('countedJob')}"}}}
                await retrying_client.patch(kind.target, namespace, obj["metadata"]["name"], patch)


def _said(obj: Json | None, type: str) -> str:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or ()
    return next((str(one["status"]) for one in conditions if one["type"] == type), "")
