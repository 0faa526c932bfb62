"""A server that runs for years: its own certificates are renewed while it does, and clients notice nothing."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from remuda.apiserver import server as module
from remuda.apiserver.auth import pki
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.kube import kubeconfig
from remuda.kube.http import HttpClient
from tests.lab.limits import LIMIT_SECONDS


async def test_running_server_renews_expiring_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_RENEW_SECONDS", 0.1)
    monkeypatch.setattr(pki, "LEAF_DAYS", 29)  # less than what is left when one is renewed: every look renews
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path / "data", port=0))
    try:
        first = await _shown(server)
        before = kubeconfig.load(server.kubeconfig)
        async with asyncio.timeout(LIMIT_SECONDS):
            while await _shown(server) == first or kubeconfig.load(server.kubeconfig) == before:
                await asyncio.sleep(0.05)
        for access in (before, kubeconfig.load(server.kubeconfig)):
            client = HttpClient(access)
            await client.raw_get("/api/v1/namespaces")
            await client.close()
    finally:
        await server.stop()
    assert caplog.messages == []


async def _shown(server: ApiServer) -> bytes:
    trust = ssl.create_default_context(cadata=server.authorities.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", server.front.port, ssl=trust)
    try:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
    return bytes(found)
