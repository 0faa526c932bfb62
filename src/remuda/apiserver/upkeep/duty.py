"""Base classes of duties, which follow committed changes and repair keys. Helpers of duties: writes as the server
itself, and the conditions of the objects that they report on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from remuda.apiserver.registry.calls import DeleteOptions, WriteOptions
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.storage.types import StoreEvent
from remuda.apiserver.upkeep.worker import Worker
from remuda.kube import clock
from remuda.kube.errors import ignore_not_found

# Field managers of upkeep's writes: upstream, some of these loops run in kube-apiserver, others in
# kube-controller-manager.
SERVER = "kube-apiserver"
CONTROLLERS = "kube-controller-manager"

Condition = dict[str, Any]


class UpkeepTask(Protocol):
    """Loop of upkeep. `start` checks everything once, then `observe` gets each committed batch."""

    async def start(self) -> None: ...

    def observe(self, events: Sequence[StoreEvent]) -> None: ...

    async def close(self) -> None: ...


async def modify(
    registry: Registry,
    table: str,
    namespace: str,
    name: str,
    change: Callable[[Obj], Obj],
    subresource: str = "",
    *,
    manager: str = SERVER,
) -> None:
    """Change a stored object as the server itself. `change` returns a new object and does not change its argument."""
    resource = registry.resources.of_table(table)
    if resource is not None:
        call = registry.system_call("update", resource, namespace, name, subresource)
        await registry.modify(call, change, _options(manager))


async def create(registry: Registry, table: str, namespace: str, obj: Obj, *, manager: str = SERVER) -> None:
    resource = registry.resources.of_table(table)
    if resource is not None:
        await registry.create(registry.system_call("create", resource, namespace, ""), obj, _options(manager))


async def delete(registry: Registry, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> None:
    """Delete an object as the server itself; ignore an object that is already deleted."""
    with ignore_not_found():
        await registry.delete(registry.system_call("delete", resource, namespace, name), options)


def _options(manager: str) -> WriteOptions:
    return WriteOptions(field_manager=manager, field_validation="Ignore")


class KeyedDuty:
    """Duty with one worker over keys of any type."""

    def __init__(self, name: str, registry: Registry, process: Callable[..., Awaitable[None]]) -> None:
        self.registry = registry
        self.worker: Worker[tuple[str, ...]] = Worker(name, process)

    async def close(self) -> None:
        await self.worker.close()


def condition(kind: str, status: str, reason: str, message: str) -> Condition:
    return {"type": kind, "status": status, "lastTransitionTime": clock.now(), "reason": reason, "message": message}


def with_conditions(present: Iterable[Condition], new: Iterable[Condition]) -> list[Condition]:
    """Return the conditions with some replaced or added; a transition time changes only with its status."""
    conditions = {one["type"]: one for one in present}
    for one in new:
        old = conditions.get(one["type"])
        if old is not None and old["status"] == one["status"]:
            one = {**one, "lastTransitionTime": old.get("lastTransitionTime")}
        conditions[one["type"]] = one
    return list(conditions.values())
