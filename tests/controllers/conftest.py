"""Controllers on an engine: `pytest tests/controllers` on the embedded one, `--engine=kubernetes` on the real one.

One engine serves the whole run, so all tests here share one event loop. Admission is in force on both: in process, and
as webhooks that this process serves. On the embedded engine the loop is guarded: there everything is in this process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.app.controllers import EMBEDDED_ADMISSION, EVERY, webhooks
from remuda.app.webhooks import own_user
from remuda.capi import names
from remuda.capi.definitions import definitions
from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube import kubeconfig
from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient
from remuda.kube.objects import Key
from remuda.runtime.caches import Caches
from remuda.runtime.guard import SlowCallback, guarded
from remuda.runtime.webhooks import Location, lookup_in, select_in
from remuda.runtime.webhooks.service import WebhookService
from tests.controllers.engine import Engine, eventually
from tests.lab.ports import free_port

_TESTS = f"{Path(__file__).parents[1]}/"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=["embedded", "kubernetes"], default="embedded", help="what controllers run on")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    if request.config.getoption("--engine") == "kubernetes":
        async with _kubernetes() as found:
            yield found
    else:
        async with _embedded(tmp_path_factory.mktemp("engine")) as found:
            yield found


@pytest.fixture(autouse=True)
def loop_guard(request: pytest.FixtureRequest, engine: Engine) -> Iterator[None]:
    """Whoever holds up the loop fails the test; what a test itself takes its time for is its own affair."""
    if engine.name != "embedded":
        yield
        return
    slow_calls: list[SlowCallback] = []
    with guarded(slow_calls.append):
        yield
    found = [str(slow_call) for slow_call in slow_calls if not slow_call.involves(_TESTS)]
    assert not found, "\n\n".join(found)


@asynccontextmanager
async def _embedded(folder: Path) -> AsyncIterator[Engine]:
    server = await ApiServer.start(ServerSettings(data_dir=folder, port=0), admission=EMBEDDED_ADMISSION)
    try:
        engine = Engine("embedded", server.client(), server.kubeconfig)
        await engine.install(definitions())
        yield engine
    finally:
        await server.stop()


@asynccontextmanager
async def _kubernetes() -> AsyncIterator[Engine]:
    from tests.lab import Upstream

    server = Upstream()
    async with AsyncExitStack() as stack:
        stack.callback(server.stop)
        client = HttpClient(kubeconfig.load(server.kubeconfig))
        stack.push_async_callback(client.close)
        engine = Engine("kubernetes", client, server.kubeconfig)
        await engine.install(definitions())
        await stack.enter_async_context(_admission(engine))
        yield engine


@asynccontextmanager
async def _admission(engine: Engine) -> AsyncIterator[None]:
    """Our webhooks, in force."""
    client, port = engine.client, free_port()
    nothing = Caches(client)

    def lookup(api_version: str, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        return lookup_in(engine.seen or nothing)(api_version, plural, namespace, name)

    def select(api_version: str, plural: str, namespace: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        return select_in(engine.seen or nothing)(api_version, plural, namespace, labels)

    service = WebhookService(
        client,
        webhooks(EVERY),
        lookup,
        select=select,
        location=Location(url=f"https://127.0.0.1:{port}"),
        secret=Key("default", "webhooks"),
        own=await own_user(client),
    )
    await service.start("127.0.0.1", port)
    try:
        await eventually(lambda: _is_checked(client))
        yield
    finally:
        await service.stop()


async def _is_checked(client: Client) -> bool:
    """The API server learns of each of the two configurations by a watch of its own."""
    ref = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AnyCluster", "name": "probe"}
    wrong = {"infrastructureRef": ref, "clusterNetwork": {"pods": {"cidrBlocks": ["ten"]}}}
    bare = {"clusterName": "probe", "bootstrap": {"dataSecretName": "probe"}, "infrastructureRef": ref}
    machine = await client.create(MACHINE.target, "default", _probe("Machine", bare), dry_run=True)
    try:
        await client.create(CLUSTER.target, "default", _probe("Cluster", wrong), dry_run=True)
    except StatusError as error:
        return "denied the request" in error.message and b"nodeDeletionTimeoutSeconds" in machine
    return False


def _probe(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": "probe"}, "spec": spec}
