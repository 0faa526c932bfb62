"""What must exist before the first request: namespaces and the default roles and bindings.

Run at every start, all writes at once so that they share a commit. What is there already and as it should be is left
alone; default roles and bindings are mended unless they are marked not to be.
"""

from __future__ import annotations

import asyncio

from remuda.apiserver.auth.bootstrap_policy import Change, needed_changes
from remuda.apiserver.registry.calls import DeleteOptions
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.upkeep.duty import create, modify
from remuda.apiserver.upkeep.namespaces import create_first_namespaces


async def bootstrap(registry: Registry) -> None:
    await create_first_namespaces(registry)
    changes = needed_changes(registry.read)
    await asyncio.gather(*(_carry_out(registry, change) for change in changes))


async def _carry_out(registry: Registry, change: Change) -> None:
    metadata = change.obj["metadata"]
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    if change.operation == "update":
        await modify(registry, change.table, namespace, name, lambda live: change.obj)
        return
    if change.operation == "recreate":
        resource = registry.resources.of_table(change.table)
        assert resource is not None
        await registry.delete(registry.system_call("delete", resource, namespace, name), DeleteOptions())
    await create(registry, change.table, namespace, change.obj)
