"""The shape of a duty: follow committed changes, repair keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from remuda.apiserver.registry.calls import WriteOptions
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.resource import Obj
from remuda.apiserver.storage.types import Event
from remuda.apiserver.upkeep.worker import Worker

# Field owner of what upkeep writes; the name upstream's own built-in loops use.
MANAGER = "kube-apiserver"
WRITE = WriteOptions(field_manager=MANAGER, field_validation="Ignore")


class Duty(Protocol):
    """One loop of upkeep. `start` looks at everything once, then `observe` is told of each committed batch."""

    async def start(self) -> None: ...

    def observe(self, events: Sequence[Event]) -> None: ...

    async def close(self) -> None: ...


async def modify(
    registry: Registry, table: str, namespace: str, name: str, change: Callable[[Obj], Obj], subresource: str = ""
) -> None:
    """Changes a stored object as the server itself. `change` gives a new object and leaves its argument alone."""
    resource = registry.resources.of_table(table)
    if resource is not None:
        await registry.modify(registry.system_call("update", resource, namespace, name, subresource), change, WRITE)


async def create(registry: Registry, table: str, namespace: str, obj: Obj) -> None:
    resource = registry.resources.of_table(table)
    if resource is not None:
        await registry.create(registry.system_call("create", resource, namespace, ""), obj, WRITE)


class KeyedDuty:
    """A duty with one worker over keys of any kind."""

    def __init__(self, name: str, registry: Registry, process: Callable[..., Awaitable[None]]) -> None:
        self.registry = registry
        self.worker: Worker[tuple[str, ...]] = Worker(name, process)

    async def close(self) -> None:
        await self.worker.close()
