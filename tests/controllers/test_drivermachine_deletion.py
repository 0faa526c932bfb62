"""Deleting a machine at every stage of its life: there is a way to the end from each, and nothing is left."""

from __future__ import annotations

import pytest_asyncio

from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube.core import JOBS, NAMESPACES, SECRETS
from remuda.providers.shared import names
from remuda.providers.shared.jobs.state import State
from remuda.providers.shared.names import ABANDON
from tests.controllers.drivermachines import BY_USER_DATA, PATIENT, Bench
from tests.controllers.engine import Engine, condition, named

REMOVED = State(phase="removed")


@pytest_asyncio.fixture(loop_scope="session")
async def bench(engine: Engine) -> Bench:
    return await Bench.create(engine)


async def test_machine_without_server_is_deleted_without_job(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster(provisioned=False)
        await bench.machine()
        await bench.says("WaitingForInfrastructure")
        await bench.delete()
        await bench.gone()
        assert await bench.left() == []


async def test_deletion_stops_create_job_before_remove_job_starts(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine()
        create = await bench.job()
        await bench.says("Creating")
        # a program that takes its time to end, as a runner's finalizer would show it
        await bench.engine.patch(JOBS, bench.namespace, named(create), {"metadata": {"finalizers": ["test/runs"]}})
        await bench.delete()
        found = await bench.says("Removing")
        assert "Job m-machine-provision" in condition(found, "Ready")["message"]
        (job,) = await bench.jobs()
        assert job["metadata"]["uid"] == create["metadata"]["uid"]
        assert job["metadata"]["deletionTimestamp"], "only when it has ended is it known what there is to remove"

        await bench.engine.patch(JOBS, bench.namespace, named(create), {"metadata": {"finalizers": None}})
        remove = await bench.job(removes=True)
        assert (await bench.order())["action"] == "remove"
        assert "value" not in await bench.data(names.provision("m"))
        await bench.succeed(remove, REMOVED)
        await bench.gone()
        assert await bench.left() == []


async def test_deletion_after_failed_create_runs_remove_job(bench: Bench) -> None:
    async with bench.running(PATIENT):
        await bench.cluster()
        await bench.machine()
        await bench.fail(await bench.job())
        await bench.says("CreateError")
        await bench.delete()
        await bench.succeed(await bench.job(removes=True), REMOVED)
        await bench.gone()
        assert await bench.left() == []


async def test_stalled_machine_is_deletable(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine()
        await bench.fail(await bench.job(), code=3)
        await bench.says("BadOptions", type="Stalled")
        await bench.delete()
        await bench.succeed(await bench.job(removes=True), REMOVED)
        await bench.gone()
        assert await bench.left() == []


async def test_machine_waiting_for_agent_is_deletable(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine()
        await bench.succeed(await bench.job(), BY_USER_DATA)
        await bench.says("WaitingForAgent")
        await bench.delete()
        await bench.succeed(await bench.job(removes=True), REMOVED)
        await bench.gone()
        assert await bench.left() == []


async def test_ready_machine_is_deletable_after_cluster_and_owner_are_gone(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.secret("cred", token=b"old")
        await bench.machine(cloudCredentialSecretName="cred")
        await bench.succeed(await bench.job())
        await bench.ready()
        await bench.settled()
        await bench.engine.patch(SECRETS, bench.namespace, "cred", {"data": {"token": "bmV3"}})
        await bench.engine.delete(CLUSTER.target, bench.namespace, "c")
        await bench.engine.delete(MACHINE.target, bench.namespace, "m")  # its machine goes with it: nobody owns it
        await bench.delete_if_there()
        remove = await bench.job(removes=True)
        assert (await bench.order())["cluster"] == "c"
        assert await bench.data(names.credential_secret("m")) == {"token": b"new"}, "credentials that were changed"
        await bench.succeed(remove, REMOVED)
        await bench.gone()
        assert await bench.left() == []


async def test_failed_removal_is_retried_and_reported(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine()
        await bench.succeed(await bench.job())
        await bench.ready()
        await bench.delete()
        await bench.fail(await bench.job(removes=True), "the API does not answer")
        found = await bench.until(lambda obj: obj["status"].get("failureReason") == "DeleteError")
        assert "the API does not answer" in found["status"]["failureMessage"]
        await bench.fail(await bench.job(removes=True), "still not")
        found = await bench.until(lambda obj: obj["status"].get("failures") == 2)
        assert (
            ABANDON in condition(found, "DeleteJob")["message"] or condition(found, "DeleteJob")["status"] == "Unknown"
        )
        await bench.succeed(await bench.job(removes=True), REMOVED)
        await bench.gone()


async def test_failed_removal_is_retried_at_once_on_retry_annotation(bench: Bench) -> None:
    async with bench.running(PATIENT):
        await bench.cluster()
        await bench.machine()
        await bench.succeed(await bench.job())
        await bench.ready()
        await bench.delete()
        await bench.fail(await bench.job(removes=True), "the API does not answer")
        await bench.until(lambda obj: obj["status"].get("failures") == 1)
        await bench.annotate("remuda.dev/retry", "1")
        await bench.succeed(await bench.job(removes=True), REMOVED)
        await bench.gone()
        assert await bench.left() == []


async def test_abandon_annotation_drops_unremovable_server_with_event(bench: Bench) -> None:
    async with bench.running(PATIENT):
        await bench.cluster()
        await bench.machine()
        await bench.succeed(await bench.job(), State(phase="bootstrapped", id="i-42", provider_id="probe://i-42"))
        await bench.ready()
        await bench.delete()
        await bench.fail(await bench.job(removes=True), "access denied")
        await bench.says("DeleteError")
        await bench.annotate(ABANDON, "true")
        await bench.gone()
        (text, *_) = await bench.events("ServerAbandoned")
        assert await bench.left() == []
    assert "i-42" in text
    assert "access denied" in text


async def test_missing_credential_blocks_removal_until_abandoned(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.secret("cred", token=b"x")
        await bench.machine(cloudCredentialSecretName="cred")
        await bench.succeed(await bench.job())
        await bench.ready()
        await bench.settled()
        await bench.engine.delete(SECRETS, bench.namespace, "cred")
        await bench.delete()
        found = await bench.says("DeleteError")
        assert f"{bench.namespace}/cred does not exist" in condition(found, "Ready")["message"]
        await bench.annotate(ABANDON, "true")
        await bench.gone()


async def test_terminating_namespace_blocks_server_removal_until_abandoned(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine()
        await bench.succeed(await bench.job())
        await bench.ready()
        await bench.settled()
        await bench.engine.delete(NAMESPACES, "", bench.namespace)
        found = await bench.says("DeleteError")
        assert "being terminated" in condition(found, "Ready")["message"]
        await bench.annotate(ABANDON, "true")
        await bench.engine.gone(NAMESPACES, "", bench.namespace)


async def test_controller_restart_between_steps_completes_lifecycle(bench: Bench) -> None:
    """Each run begins with nothing but what the server has."""
    await bench.cluster()
    await bench.machine()
    async with bench.running():
        create = await bench.job()
    await bench.succeed(create)
    async with bench.running():
        await bench.ready()
    await bench.delete()
    async with bench.running():
        remove = await bench.job(removes=True)
    await bench.succeed(remove, REMOVED)
    async with bench.running():
        await bench.gone()
    assert await bench.left() == []
