"""What a process that runs controllers answers when it is asked whether it is ready."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.app.health import served
from remuda.kube.client import Change
from remuda.kube.errors import UnreadableWatch
from remuda.runtime.caches import Caches
from tests.lab.ports import free_port
from tests.unit.runtime.things import CONFIG_MAP, Flaky, until


class Garbled(Flaky):
    async def watch(self, *args: Any, **options: Any) -> AsyncGenerator[Change, None]:
        raise UnreadableWatch("JSON is malformed")
        yield


async def test_readyz_fails_when_watch_stream_is_malformed(tmp_path: Path) -> None:
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0, volatile=True))
    caches = Caches(Garbled(server.client()))  # type: ignore[arg-type]
    caches.of(CONFIG_MAP)
    await caches.start()
    await until(lambda: caches.unreadable)
    manager = SimpleNamespace(caches=caches, metrics=SimpleNamespace(render=bytes))
    address = ("127.0.0.1", free_port())
    try:
        async with (
            served(address, manager, {}),  # type: ignore[arg-type]
            aiohttp.ClientSession(f"http://127.0.0.1:{address[1]}") as session,
            session.get("/readyz") as answer,
        ):
            assert answer.status == 503
            why = "the server's watch cannot be read: JSON is malformed"
            assert await answer.text() == f"[+]caches ok\n[-]watches: cannot watch configmaps: {why}\n"
    finally:
        await caches.close()
        await server.stop()
