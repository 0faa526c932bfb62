"""Waiting for a cluster, as `--wait` does: until it is there, until it is gone, and not for ever."""

from __future__ import annotations

import asyncio

import pytest

from remuda.cli import progress
from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import PATIENCE_SECONDS, Engine
from tests.controllers.provisioning_harness import ProvisioningHarness, pool


async def _declared(engine: Engine) -> ProvisioningHarness:
    """With nobody at work: it stays as it is."""
    harness = await ProvisioningHarness.create(engine)
    await harness.config("servers")
    await harness.cluster(pool("servers"))
    return harness


async def test_wait_for_deletion_ends_when_cluster_is_gone(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    harness = await _declared(engine)
    async with asyncio.TaskGroup() as both:
        waiting = both.create_task(
            progress.until(engine.client, harness.namespace, "prairie", seconds=PATIENCE_SECONDS, wanted=progress.GONE)
        )
        await asyncio.sleep(0)
        assert not waiting.done()
        await engine.delete(CLUSTER.target, harness.namespace, "prairie")
    assert waiting.result()
    assert f"Cluster {harness.namespace}/prairie is deleted" in capsys.readouterr().err


async def test_wait_for_deletion_returns_at_once_for_missing_cluster(engine: Engine) -> None:
    namespace = await engine.namespace()
    assert await progress.until(engine.client, namespace, "prairie", seconds=PATIENCE_SECONDS, wanted=progress.GONE)


async def test_wait_timeout_reports_blocker(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    harness = await _declared(engine)
    assert not await progress.until(engine.client, harness.namespace, "prairie", seconds=0.1)
    told = capsys.readouterr().err
    assert "waiting for the first reconcile" in told
    assert "is not ready after" in told


async def test_wait_for_missing_cluster_times_out(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert not await progress.until(engine.client, await engine.namespace(), "prairie", seconds=0.1)
    assert "the cluster does not exist" in capsys.readouterr().err
