"""Waiting for a cluster, as `--wait` does: until it is there, until it is gone, until it fails, and not for ever."""

from __future__ import annotations

import asyncio

import pytest

from remuda.capi.types import MACHINE
from remuda.cli import progress
from remuda.providers.machine import status as machine_status
from remuda.providers.shared.jobs.budget import BAD_OPTIONS, Stall
from remuda.providers.shared.types.machine import DriverMachineStatus
from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import PATIENCE_SECONDS, Engine, Json, named
from tests.controllers.program import remuda
from tests.controllers.provisioning_harness import SIM_MACHINE, ProvisioningHarness, pool


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


# ---- permanent failures (each one, as a tree: tests/unit/provisioning/test_blocker.py) -------------------------------


@pytest.fixture
def soon_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SURE_SECONDS", 0.5)


async def test_wait_ends_with_exit_code_1_at_missing_credential(engine: Engine) -> None:
    """With the real delay, and with the conditions that the controllers write."""
    harness = await ProvisioningHarness.create(engine)
    await harness.config("servers")
    async with harness.running():
        await harness.cluster(pool("servers", cloudCredentialSecretName="nowhere"))
        await harness.says("Stalled", "True")
        done = await remuda(engine, "scale", "prairie", "-n", harness.namespace, "--pool", "servers=1", "--wait")
    assert done.code == 1, done.err
    assert "cannot become ready before a user acts" in done.err
    assert f"Secret {harness.namespace}/nowhere does not exist" in done.err
    assert "next: you: " in done.err


async def test_wait_ends_at_stalled_machine_until_its_pool_has_changed(
    engine: Engine, soon_sure: None, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = await ProvisioningHarness.with_one_server(engine)
    (machine,) = await harness.machines(1)
    name = named(machine)
    said: Json = {}
    machine_status.stalled(said, DriverMachineStatus(), Stall(BAD_OPTIONS, "the driver rejects these options"))
    await engine.status(SIM_MACHINE.target, harness.namespace, name, said)
    with pytest.raises(progress.PermanentFailure):
        await progress.until(engine.client, harness.namespace, "prairie", seconds=PATIENCE_SECONDS)
    told = capsys.readouterr().err
    assert "the driver rejects these options" in told
    assert f"remuda machine logs {name} -n {harness.namespace}" in told
    # A rollout is about to delete the Machine: its failure is not the cluster's.
    outdated = {"type": "UpToDate", "status": "False", "reason": "NotUpToDate", "message": "* template"}
    news = [
        *machine.get("status", {}).get("conditions", ()),
        {**outdated, "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]
    await engine.status(MACHINE.target, harness.namespace, name, {"conditions": news})
    assert not await progress.until(engine.client, harness.namespace, "prairie", seconds=2.0)


async def test_wait_for_ready_ends_when_cluster_is_deleted(
    engine: Engine, soon_sure: None, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = await _declared(engine)
    async with asyncio.TaskGroup() as both:
        waiting = both.create_task(_fails(engine, harness.namespace))
        await engine.patch(CLUSTER.target, harness.namespace, "prairie", {"metadata": {"finalizers": ["x.example/y"]}})
        await engine.delete(CLUSTER.target, harness.namespace, "prairie")
    assert waiting.result()
    assert "does not become ready: it is deleted" in capsys.readouterr().err
    await engine.patch(CLUSTER.target, harness.namespace, "prairie", {"metadata": {"finalizers": None}})


async def _fails(engine: Engine, namespace: str) -> bool:
    try:
        await progress.until(engine.client, namespace, "prairie", seconds=PATIENCE_SECONDS)
    except progress.PermanentFailure:
        return True
    return False
