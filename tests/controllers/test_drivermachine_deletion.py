"""Deleting a machine at every stage of its life: there is a way to the end from each, and nothing is left."""

from __future__ import annotations

import base64

import pytest
import pytest_asyncio

from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube.core import JOBS, NAMESPACES, SECRETS
from remuda.providers.shared import names
from remuda.providers.shared.jobs import kept_log
from remuda.providers.shared.jobs.state import State
from remuda.providers.shared.names import ABANDON
from tests.controllers.driver_machine_harness import BY_USER_DATA, PATIENT, DriverMachineHarness
from tests.controllers.engine import Engine, condition, named
from tests.controllers.program import remuda

REMOVED = State(phase="removed")


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> DriverMachineHarness:
    return await DriverMachineHarness.create(engine)


async def test_machine_without_server_is_deleted_without_job(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster(provisioned=False)
        await harness.machine()
        await harness.says("WaitingForInfrastructure")
        await harness.delete()
        await harness.gone()
        assert await harness.left() == []


async def test_deletion_stops_create_job_before_remove_job_starts(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.machine()
        create = await harness.job()
        await harness.says("Creating")
        # a program that takes its time to end, as a runner's finalizer would show it
        await harness.engine.patch(JOBS, harness.namespace, named(create), {"metadata": {"finalizers": ["test/runs"]}})
        await harness.delete()
        found = await harness.says("Removing")
        assert "Job m-machine-provision" in condition(found, "Ready")["message"]
        (job,) = await harness.jobs()
        assert job["metadata"]["uid"] == create["metadata"]["uid"]
        assert job["metadata"]["deletionTimestamp"], "only when it has ended is it known what there is to remove"

        await harness.engine.patch(JOBS, harness.namespace, named(create), {"metadata": {"finalizers": None}})
        remove = await harness.job(removes=True)
        assert (await harness.order())["action"] == "remove"
        assert "value" not in await harness.data(names.provision("m"))
        await harness.succeed(remove, REMOVED)
        await harness.gone()
        assert await harness.left() == []


async def test_deletion_after_failed_create_runs_remove_job(harness: DriverMachineHarness) -> None:
    async with harness.running(PATIENT):
        await harness.cluster()
        await harness.machine()
        await harness.fail(await harness.job())
        await harness.says("CreateError")
        await harness.delete()
        await harness.succeed(await harness.job(removes=True), REMOVED)
        await harness.gone()
        assert await harness.left() == []


async def test_stalled_machine_is_deletable(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.machine()
        await harness.fail(await harness.job(), code=3)
        await harness.says("BadOptions", type="Stalled")
        await harness.delete()
        await harness.succeed(await harness.job(removes=True), REMOVED)
        await harness.gone()
        assert await harness.left() == []


async def test_machine_waiting_for_agent_is_deletable(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.machine()
        await harness.succeed(await harness.job(), BY_USER_DATA)
        await harness.says("WaitingForAgent")
        await harness.delete()
        await harness.succeed(await harness.job(removes=True), REMOVED)
        await harness.gone()
        assert await harness.left() == []


async def test_ready_machine_is_deletable_after_cluster_and_owner_are_gone(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.secret("cred", token=b"old")
        await harness.machine(cloudCredentialSecretName="cred")
        await harness.succeed(await harness.job())
        await harness.ready()
        await harness.settled()
        await harness.engine.patch(SECRETS, harness.namespace, "cred", {"data": {"token": "bmV3"}})
        await harness.engine.delete(CLUSTER.target, harness.namespace, "c")
        await harness.engine.delete(MACHINE.target, harness.namespace, "m")  # its machine goes with it: nobody owns it
        await harness.delete_if_there()
        remove = await harness.job(removes=True)
        assert (await harness.order())["cluster"] == "c"
        assert await harness.data(names.credential_secret("m")) == {"token": b"new"}, "credentials that were changed"
        await harness.succeed(remove, REMOVED)
        await harness.gone()
        assert await harness.left() == []


async def test_failed_removal_is_retried_and_reported(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.machine()
        await harness.succeed(await harness.job())
        await harness.ready()
        await harness.delete()
        await harness.fail(await harness.job(removes=True), "the API does not answer")
        found = await harness.until(lambda obj: obj["status"].get("failureReason") == "DeleteError")
        assert "the API does not answer" in found["status"]["failureMessage"]
        await harness.fail(await harness.job(removes=True), "still not")
        found = await harness.until(lambda obj: obj["status"].get("failures") == 2)
        assert (
            ABANDON in condition(found, "DeleteJob")["message"] or condition(found, "DeleteJob")["status"] == "Unknown"
        )
        await harness.succeed(await harness.job(removes=True), REMOVED)
        await harness.gone()


async def test_failed_removal_is_retried_at_once_on_retry_annotation(harness: DriverMachineHarness) -> None:
    async with harness.running(PATIENT):
        await harness.cluster()
        await harness.machine()
        await harness.succeed(await harness.job())
        await harness.ready()
        await harness.delete()
        await harness.fail(await harness.job(removes=True), "the API does not answer")
        await harness.until(lambda obj: obj["status"].get("failures") == 1)
        await harness.annotate("remuda.dev/retry", "1")
        await harness.succeed(await harness.job(removes=True), REMOVED)
        await harness.gone()
        assert await harness.left() == []


async def test_abandon_annotation_drops_unremovable_server_with_event(harness: DriverMachineHarness) -> None:
    async with harness.running(PATIENT):
        await harness.cluster()
        await harness.machine()
        await harness.succeed(await harness.job(), State(phase="bootstrapped", id="i-42", provider_id="probe://i-42"))
        await harness.ready()
        await harness.delete()
        await harness.fail(await harness.job(removes=True), "access denied")
        await harness.says("DeleteError")
        await harness.annotate(ABANDON, "true")
        await harness.gone()
        (text, *_) = await harness.events("ServerAbandoned")
        assert await harness.left() == []
    assert "i-42" in text
    assert "access denied" in text


async def test_missing_credential_blocks_removal_until_abandoned(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.secret("cred", token=b"x")
        await harness.machine(cloudCredentialSecretName="cred")
        await harness.succeed(await harness.job())
        await harness.ready()
        await harness.settled()
        await harness.engine.delete(SECRETS, harness.namespace, "cred")
        await harness.delete()
        found = await harness.says("CredentialNotFound")
        assert f"{harness.namespace}/cred does not exist" in condition(found, "Ready")["message"]
        await harness.annotate(ABANDON, "true")
        await harness.gone()


async def test_terminating_namespace_blocks_server_removal_until_abandoned(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.machine()
        await harness.succeed(await harness.job())
        await harness.ready()
        await harness.settled()
        await harness.engine.delete(NAMESPACES, "", harness.namespace)
        found = await harness.says("DeleteError")
        assert "being terminated" in condition(found, "Ready")["message"]
        await harness.annotate(ABANDON, "true")
        await harness.engine.gone(NAMESPACES, "", harness.namespace)


async def test_controller_restart_between_steps_completes_lifecycle(harness: DriverMachineHarness) -> None:
    """Each run begins with nothing but what the server has."""
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        create = await harness.job()
    await harness.succeed(create)
    async with harness.running():
        await harness.ready()
    await harness.delete()
    async with harness.running():
        remove = await harness.job(removes=True)
    await harness.succeed(remove, REMOVED)
    async with harness.running():
        await harness.gone()
    assert await harness.left() == []


async def test_newest_logs_of_deleted_machines_stay_readable(
    harness: DriverMachineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_log, "MOST_SECRETS", 1)
    engine, place = harness.engine, harness.namespace
    async with harness.running():
        await harness.cluster()
        for name in ("m", "n"):
            await harness.machine(name)
            await harness.succeed(await harness.job(name))
            await harness.ready(name)
            await harness.settled()
            log = kept_log.LogTail()
            log.add(f"server of {name} is created")
            data = {kept_log.CREATE_LOG: base64.b64encode(log.packed()).decode()}
            await engine.patch(SECRETS, place, names.state_secret(name), {"data": data})
            alive = await remuda(engine, "machine", "logs", name, "-n", place)
            assert (alive.code, alive.out) == (0, f"server of {name} is created\n")
            await harness.delete(name)
            await harness.succeed(await harness.job(name, removes=True))
            await harness.gone(name)
    ended = await remuda(engine, "machine", "logs", "n", "-n", place)
    assert (ended.code, ended.out) == (0, "server of n is created\n"), ended
    assert (await remuda(engine, "machine", "logs", "m", "-n", place)).code == 1
