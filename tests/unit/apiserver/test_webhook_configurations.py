"""The engine calls no webhooks, so it refuses their configurations instead of storing what would have no effect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.kube.client import Target
from remuda.kube.errors import StatusError

GROUP = "admissionregistration.k8s.io/v1"
KINDS = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
ABSENT = "does not call admission webhooks yet, so the configuration would have no effect"


def target(kind: str) -> Target:
    return Target(GROUP, f"{kind.lower()}s")


def configuration(kind: str, **metadata: Any) -> dict[str, Any]:
    hook = {
        "name": "a.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1"},
    }
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": "a", **metadata}, "webhooks": [hook]}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    running = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0))
    yield running
    await running.stop()


@pytest.mark.parametrize("kind", KINDS)
async def test_webhook_configuration_is_refused(server: ApiServer, kind: str) -> None:
    client, where = server.client(), target(kind)
    for dry_run in (True, False):
        with pytest.raises(StatusError) as created:
            await client.create(where, "", configuration(kind), dry_run=dry_run)
        with pytest.raises(StatusError) as applied:
            await client.patch(where, "", "a", configuration(kind), kind="apply", dry_run=dry_run)
        for caught in (created, applied):
            assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
            assert ABSENT in caught.value.message
    assert (await client.list(where)).items == []


@pytest.mark.parametrize("kind", KINDS)
async def test_stored_webhook_configuration_can_only_be_deleted(tmp_path: Path, kind: str) -> None:
    """An engine before this one has stored it."""
    where = target(kind)
    before = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0, webhook_records=True))
    await before.client().create(where, "", configuration(kind, finalizers=["example.com/a"]))
    await before.stop()
    after = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0))
    try:
        client = after.client()
        with pytest.raises(StatusError, match=ABSENT):
            await client.patch(where, "", "a", {"metadata": {"labels": {"a": "b"}}})
        await client.delete(where, "", "a")
        await client.patch(where, "", "a", {"metadata": {"finalizers": None}})
        assert (await client.list(where)).items == []
    finally:
        await after.stop()
