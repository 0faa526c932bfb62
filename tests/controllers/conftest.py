"""Controllers on an engine: `pytest tests/controllers` on the embedded one, `--engine=kubernetes` on the real one.

One engine serves the whole run, so all tests here share one event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from remuda.apiserver.server import ApiServer, Settings
from remuda.capi import admission
from remuda.capi.definitions import definitions
from remuda.kube import kubeconfig
from remuda.kube.http import HttpClient
from tests.controllers.engine import Engine


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=["embedded", "kubernetes"], default="embedded", help="what controllers run on")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    if request.config.getoption("--engine") == "kubernetes":
        async for found in _kubernetes():
            yield found
    else:
        async for found in _embedded(tmp_path_factory.mktemp("engine")):
            yield found


async def _embedded(folder: Path) -> AsyncIterator[Engine]:
    server = await ApiServer.start(Settings(data_dir=folder, port=0))
    for function in admission.FUNCTIONS:
        server.registry.admission.register(*function)
    engine = Engine("embedded", server.client(), server.kubeconfig)
    await engine.install(definitions())
    yield engine
    await server.stop()


async def _kubernetes() -> AsyncIterator[Engine]:
    from tests.lab import Upstream

    server = Upstream()
    try:
        client = HttpClient(kubeconfig.load(server.kubeconfig))
        engine = Engine("kubernetes", client, server.kubeconfig)
        await engine.install(definitions())
        yield engine
        await client.close()
    finally:
        server.stop()
