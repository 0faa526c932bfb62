"""The same client twice on one embedded server: in process, and over HTTP."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from remuda.apiserver.auth.user import User
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.kube import kubeconfig
from remuda.kube.client import Client, Target
from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient
from tests.suites.client import CONFIGMAPS, NAMESPACES, ClientSuite, config, define_horses, loads

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiServer]:
    path: Path = tmp_path_factory.mktemp("client")
    running = await ApiServer.start(ServerSettings(data_dir=path, port=0))
    yield running
    await running.stop()


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["in process", "over HTTP"])
async def client(server: ApiServer, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    if request.param == "in process":
        made: Client = server.client()
    else:
        made = HttpClient(kubeconfig.load(server.kubeconfig, environ={}))
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def horses(client: Client) -> Target:
    return await define_horses(client, f"h{secrets.token_hex(3)}.example")


@pytest_asyncio.fixture(loop_scope="module")
async def space(client: Client) -> str:
    name = f"space-{secrets.token_hex(4)}"
    await client.create(NAMESPACES, "", {"metadata": {"name": name}})
    return name


class TestClient(ClientSuite):
    pass


async def test_local_and_http_clients_return_the_same_bytes(server: ApiServer) -> None:
    local, remote = server.client(), HttpClient(kubeconfig.load(server.kubeconfig, environ={}))
    await remote.create(CONFIGMAPS, "default", config("same", a="ü"))
    try:
        for one in (local, remote):
            found = await one.get(CONFIGMAPS, "default", "same")
            assert found == await local.get(CONFIGMAPS, "default", "same")
            listed = await one.list(CONFIGMAPS, "default", field_selector="metadata.name=same")
            assert list(listed.items) == [found]
    finally:
        await remote.close()


async def test_local_client_enforces_user_permissions(server: ApiServer) -> None:
    nobody = server.client(User("nobody"))
    with pytest.raises(StatusError) as caught:
        await nobody.raw_get("/metrics")
    assert caught.value.code == 403
    with pytest.raises(StatusError) as caught:
        await server.client().raw_get("/api/v1/namespaces")
    assert caught.value.code == 404
    assert loads(await server.client().raw_get("/apis"))["kind"] == "APIGroupList"
