"""One way for a controller test to use an engine, whichever it is: the embedded one in this process, or a real
kube-apiserver with etcd and kube-controller-manager.

A test works in a namespace of its own and runs only the controllers it names, limited to that namespace. It waits by
watching, and every wait is bounded.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from remuda.kube.client import Client, Target
from remuda.kube.errors import Gone, NotFound
from remuda.kube.objects import Key
from remuda.runtime.caches import Caches
from remuda.runtime.definitions import install
from remuda.runtime.manager import Manager
from tests.lab.limits import LIMIT_SECONDS

Json = dict[str, Any]

NAMESPACES = Target("v1", "namespaces")
PATIENCE_SECONDS = LIMIT_SECONDS


class Engine:
    def __init__(self, name: str, client: Client, kubeconfig: Path) -> None:
        self.name = name
        self.client = client
        self.kubeconfig = kubeconfig
        self.seen: Caches | None = None  # of the manager that runs: what admission by webhooks looks things up in

    async def namespace(self) -> str:
        """A new one."""
        name = f"t-{secrets.token_hex(4)}"
        await self.client.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    async def install(self, definitions: Sequence[Json]) -> None:
        await install(self.client, definitions, timeout_seconds=LIMIT_SECONDS)

    @asynccontextmanager
    async def running(self, namespace: str, *setups: Callable[[Manager], None]) -> AsyncIterator[Manager]:
        """A manager with the controllers `setups` add, at work in one namespace until the block ends."""
        manager = Manager(self.client, namespace=namespace, name="test", interval=0.02)
        for setup in setups:
            setup(manager)
        await manager.start()
        before, self.seen = self.seen, manager.caches
        try:
            manager.lead()
            yield manager
        finally:
            self.seen = before
            await manager.stop()

    async def create(self, target: Target, namespace: str, obj: Json) -> Json:
        return decode(await self.client.create(target, namespace, obj))

    async def get(self, target: Target, namespace: str, name: str) -> Json | None:
        try:
            return decode(await self.client.get(target, namespace, name))
        except NotFound:
            return None

    async def list(self, target: Target, namespace: str, label_selector: str = "") -> Sequence[Json]:
        listing = await self.client.list(target, namespace, label_selector=label_selector)
        return [decode(item) for item in listing.items]

    async def patch(self, target: Target, namespace: str, name: str, patch: Json, subresource: str = "") -> Json:
        return decode(await self.client.patch(target, namespace, name, patch, subresource=subresource))

    async def status(self, target: Target, namespace: str, name: str, status: Json) -> Json:
        """Merges into the status, as the controller of that object would."""
        return await self.patch(target, namespace, name, {"status": status}, "status")

    async def delete(self, target: Target, namespace: str, name: str) -> None:
        await self.client.delete(target, namespace, name)

    async def until(
        self,
        target: Target,
        namespace: str,
        name: str,
        holds: Callable[[Json], object],
        *,
        seconds: float = PATIENCE_SECONDS,
    ) -> Json:
        """The object as soon as `holds` of it; fails with its last state."""
        found = await self.when(
            target, namespace, lambda objects: _first(objects, name, holds), seconds=seconds, about=name
        )
        return found  # type: ignore[no-any-return]

    async def gone(self, target: Target, namespace: str, name: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        await self.when(
            target, namespace, lambda objects: all(named(obj) != name for obj in objects), seconds=seconds, about=name
        )

    async def when(
        self,
        target: Target,
        namespace: str,
        holds: Callable[[Sequence[Json]], Any],
        *,
        seconds: float = PATIENCE_SECONDS,
        about: str = "",
    ) -> Any:
        """What `holds` returns for the objects of a namespace, as soon as that is true."""
        objects: dict[Key, Json] = {}
        try:
            async with asyncio.timeout(seconds):
                while True:
                    listing = await self.client.list(target, namespace)
                    objects = {key(obj): obj for obj in map(decode, listing.items)}
                    if found := holds(list(objects.values())):
                        return found
                    if found := await self._follow(target, namespace, listing.resource_version, objects, holds):
                        return found
        except TimeoutError:
            shown = [obj for obj in objects.values() if not about or named(obj) == about]
            text = msgspec.json.format(msgspec.json.encode([_readable(obj) for obj in shown]), indent=1).decode()
            raise AssertionError(f"not within {seconds} s; {target.plural} in {namespace}: {text}") from None

    async def _follow(
        self,
        target: Target,
        namespace: str,
        revision: str,
        objects: dict[Key, Json],
        holds: Callable[[Sequence[Json]], Any],
    ) -> Any:
        with suppress(Gone):
            async for change in self.client.watch(target, namespace, resource_version=revision):
                if change.type == "BOOKMARK":
                    continue
                obj = decode(change.value)
                if change.type == "DELETED":
                    objects.pop(key(obj), None)
                else:
                    objects[key(obj)] = obj
                if found := holds(list(objects.values())):
                    return found
        return None


async def eventually(holds: Callable[[], Awaitable[bool]], *, seconds: float = PATIENCE_SECONDS) -> None:
    """For what cannot be watched: asked again and again."""
    async with asyncio.timeout(seconds):
        while not await holds():
            await asyncio.sleep(0.05)


def decode(value: bytes) -> Json:
    return msgspec.json.decode(value)  # type: ignore[no-any-return]


def key(obj: Json) -> Key:
    return Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def named(obj: Json) -> str:
    return obj["metadata"]["name"]  # type: ignore[no-any-return]


def condition(obj: Json, type: str) -> Json:
    """The condition of that type, or {}."""
    conditions = obj.get("status", {}).get("conditions", [])
    return next((found for found in conditions if found["type"] == type), {})


def is_true(obj: Json, type: str) -> bool:
    return condition(obj, type).get("status") == "True"


def _first(objects: Sequence[Json], name: str, holds: Callable[[Json], object]) -> Json | None:
    return next((obj for obj in objects if named(obj) == name and holds(obj)), None)


def _readable(obj: Json) -> Json:
    obj["metadata"].pop("managedFields", None)
    return obj
