"""Shared by the tests of the runtime: ConfigMaps as the kind at hand, and waiting for something to become true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from remuda.kube.client import Client
from remuda.kube.objects import Kind, Object

PATIENCE_SECONDS = 20.0


class ConfigMap(Object):
    data: Mapping[str, str] = {}


CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps", ConfigMap)
NODES = Kind("v1", "Node", "nodes", Object, namespaced=False)


def config_map(name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": dict(data or {})}


async def create(client: Client, name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> ConfigMap:
    return CONFIG_MAP.decode(await client.create(CONFIG_MAP.target, "default", config_map(name, data, **metadata)))


async def until(true: Callable[[], object]) -> None:
    """Waits by turns of the loop: for what this process itself brings about."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not true():
            await asyncio.sleep(0.002)
