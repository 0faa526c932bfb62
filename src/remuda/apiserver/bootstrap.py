"""Bootstrap objects that must exist before the first request: namespaces and the default roles and bindings.

Runs at every start, with all writes at once so that they share a commit. Correct objects are not written. Default roles
and bindings are repaired unless they are marked not to be. Objects damaged on disk are left alone as well: `remuda
fsck` repairs them.
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
    changes = needed_changes(registry.read, damaged={one.key for one in registry.store.damaged})
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
