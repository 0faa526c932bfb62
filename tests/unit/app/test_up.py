"""`remuda up` in this process: when it says that it is ready, and why it does not start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from remuda.apiserver.server import ServerSettings
from remuda.app import controllers, process, up
from remuda.kube import kubeconfig
from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient
from tests.lab.limits import LIMIT_SECONDS


def core(data_dir: Path) -> up.UpSettings:
    return up.UpSettings(server=ServerSettings(data_dir=data_dir, port=0), controllers=controllers.GROUPS["core"])


@asynccontextmanager
async def running(data_dir: Path) -> AsyncIterator[HttpClient]:
    stop = asyncio.Event()
    serving = asyncio.create_task(up.serve(core(data_dir), stop))
    client: HttpClient | None = None
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not (data_dir / "admin.kubeconfig").exists():
                if serving.done():
                    serving.result()
                await asyncio.sleep(0.01)
        client = HttpClient(kubeconfig.load(data_dir / "admin.kubeconfig"))
        yield client
    finally:
        if client is not None:
            await client.close()
        stop.set()
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


async def readiness(client: HttpClient) -> str:
    try:
        return (await client.raw_get("/readyz?verbose")).decode()
    except StatusError as error:
        return str(error)


async def until_ready(client: HttpClient, told: Callable[[str], bool]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not told(await readiness(client)):
            await asyncio.sleep(0.02)


async def test_readyz_fails_until_remuda_crds_are_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = asyncio.Event()
    install = controllers.install

    async def slow(*arguments: Any) -> None:
        await go_on.wait()
        await install(*arguments)

    monkeypatch.setattr(controllers, "install", slow)
    async with running(tmp_path / "data") as client:
        assert "[-]kinds failed: the definitions of Remuda's own kinds are not installed yet" in await readiness(client)
        assert await client.raw_get("/livez") == b"ok"
        go_on.set()
        await until_ready(client, lambda told: "[+]kinds ok" in told)
        assert b"clusters" in await client.raw_get("/apis/cluster.x-k8s.io/v1beta2")
        await until_ready(client, lambda told: told.endswith("readyz check passed\n"))


async def test_damaged_crd_in_database_aborts_start_and_is_named(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as client:
        await until_ready(client, lambda told: told.endswith("readyz check passed\n"))
    connection = apsw.Connection(str(tmp_path / "data" / "state.db"))
    connection.execute("UPDATE objects SET value = x'00' WHERE name = 'machines.cluster.x-k8s.io'")
    connection.close()
    with pytest.raises(
        process.StartRefused, match=r"customresourcedefinitions\.apiextensions\.k8s\.io machines\.cluster"
    ):
        await asyncio.wait_for(up.serve(core(tmp_path / "data"), asyncio.Event()), LIMIT_SECONDS)
