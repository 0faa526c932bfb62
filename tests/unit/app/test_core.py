"""Providers without a core of ours: they stand on the kinds of whoever runs one, and refuse to start on none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.app import controllers
from remuda.app.manager import ManagerSettings, serve
from remuda.app.process import StartRefused
from remuda.capi.definitions import definitions
from remuda.kube import kubeconfig
from remuda.kube.definitions import DEFINITION
from remuda.kube.http import HttpClient
from remuda.runtime.definitions import install

BESIDE = controllers.choose(("providers", "provisioning"))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    running = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0, volatile=True))
    yield running
    await running.stop()


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[HttpClient]:
    made = HttpClient(kubeconfig.load(server.kubeconfig))
    yield made
    await made.close()


async def test_providers_refuse_to_start_without_cluster_api_and_write_nothing(
    server: ApiServer, tmp_path: Path
) -> None:
    settings = ManagerSettings(kubeconfig=server.kubeconfig, controllers=("providers",), nodes=("127.0.0.1", 1))
    with pytest.raises(StartRefused) as refused:
        await serve(settings, asyncio.Event())
    said = str(refused.value)
    assert said.startswith(
        "Cluster API is not installed on this cluster: clusters.cluster.x-k8s.io, machines.cluster.x-k8s.io"
    )
    assert said.endswith("or run Remuda's by omitting --controllers")
    assert (await server.client().list(DEFINITION.target)).items == []


async def test_partially_installed_core_is_rejected(server: ApiServer, client: HttpClient) -> None:
    await install(server.client(), definitions()[:1])
    with pytest.raises(StartRefused, match=r": machines\.cluster\.x-k8s\.io, machinesets"):
        await controllers.require_core(client, BESIDE)


async def test_core_serving_only_an_older_api_version_is_rejected(server: ApiServer, client: HttpClient) -> None:
    older = definitions()
    for definition in older:
        definition["spec"]["versions"][0]["name"] = "v1beta1"
    await install(server.client(), older)
    with pytest.raises(StartRefused, match=r": clusters\..* not served in v1beta2"):
        await controllers.require_core(client, BESIDE)


async def test_core_installed_by_another_program_is_accepted(server: ApiServer, client: HttpClient) -> None:
    await install(server.client(), definitions())
    await controllers.require_core(client, BESIDE)


async def test_own_core_and_job_runner_require_no_installed_core(client: HttpClient) -> None:
    await controllers.require_core(client, controllers.EVERY)
    await controllers.require_core(client, controllers.choose(("job-runner",)))
