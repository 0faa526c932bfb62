"""Shared by the tests of the runtime: ConfigMaps as the kind at hand, and waiting for something to become true."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.kube.client import Change, Client, Listing, Target
from remuda.kube.objects import Kind, Object
from remuda.lab.simulator.loop import run
from tests.lab.limits import LIMIT_SECONDS


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
    async with asyncio.timeout(LIMIT_SECONDS):
        while not true():
            await asyncio.sleep(0.002)


class Flaky:
    """A client between a reflector and the engine, whose connection a test can cut.

    `lists` and `watches` count what was asked; the errors in `failing` are raised by the next of either."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cut: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.failing: list[Exception] = []
        self.lists = 0
        self.watches = 0

    def cut(self, error: Exception | None = None) -> None:
        """Ends every watch, with an error or as a server does that has had enough of it."""
        self._cut.set_result(error)
        self._cut = asyncio.get_running_loop().create_future()

    async def list(self, target: Target, namespace: str = "", **options: Any) -> Listing:
        self.lists += 1
        if self.failing:
            raise self.failing.pop(0)
        return await self._client.list(target, namespace, **options)

    async def watch(self, target: Target, namespace: str = "", **options: Any) -> AsyncGenerator[Change, None]:
        self.watches += 1
        if self.failing:
            raise self.failing.pop(0)
        cut = self._cut
        watch = self._client.watch(target, namespace, **options)
        following: asyncio.Future[Change] | None = None
        try:
            while True:
                following = asyncio.ensure_future(anext(watch))
                await asyncio.wait((following, cut), return_when=asyncio.FIRST_COMPLETED)
                if cut.done():
                    if (error := cut.result()) is not None:
                        raise error
                    return
                yield following.result()
        finally:
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            await watch.aclose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    """Runs a test in virtual time; one that asks for a server is given an engine of its own."""

    async def with_server(folder: Path) -> None:
        server = await ApiServer.start(ServerSettings(data_dir=folder, port=0, volatile=True))
        try:
            await test(server)
        finally:
            await server.stop()

    def testing(tmp_path: Path) -> None:
        run(with_server(tmp_path) if inspect.signature(test).parameters else test())

    testing.__name__ = test.__name__
    testing.__doc__ = test.__doc__
    return testing
