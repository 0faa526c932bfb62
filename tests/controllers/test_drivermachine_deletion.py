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


async def test_before_anything_was_asked_for_it_just_goes(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster(provisioned=False)
        await bench.machine()
        await bench.says("WaitingForInfrastructure")
        await bench.delete()
        await bench.gone()
        assert await bench.left() == []


async def test_while_its_server_is_being_created_that_is_stopped_first(bench: Bench) -> None:
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


async def test_after_a_failed_attempt_what_it_left_is_removed(bench: Bench) -> None:
    async with bench.running(PATIENT):
        await bench.cluster()
        await bench.machine()
        await bench.fail(await bench.job())
        await bench.says("CreateError")
        await bench.delete()
        await bench.succeed(await bench.job(removes=True), REMOVED)
        await bench.gone()
        assert await bench.left() == []


async def test_a_stalled_machine_can_go(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine()
        await bench.fail(await bench.job(), code=3)
        await bench.says("BadOptions", type="Stalled")
        await bench.delete()
        await bench.succeed(await bench.job(removes=True), REMOVED)
        await bench.gone()
        assert await bench.left() == []


async def test_while_it_waits_for_its_agent(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine()
        await bench.succeed(await bench.job(), BY_USER_DATA)
        await bench.says("WaitingForAgent")
        await bench.delete()
        await bench.succeed(await bench.job(removes=True), REMOVED)
        await bench.gone()
        assert await bench.left() == []


async def test_a_ready_machine_whose_cluster_and_machine_are_gone(bench: Bench) -> None:
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


async def test_a_removal_that_fails_is_repeated_and_says_why(bench: Bench) -> None:
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


async def test_a_removal_that_failed_is_tried_at_once_when_somebody_asks(bench: Bench) -> None:
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


async def test_a_server_that_cannot_be_removed_is_abandoned_on_demand_by_name(bench: Bench) -> None:
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


async def test_without_its_credential_it_says_so_and_goes_on_when_that_is_back(bench: Bench) -> None:
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


async def test_in_a_namespace_that_goes_no_server_is_forgotten_in_silence(bench: Bench) -> None:
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


async def test_the_controller_may_die_between_any_two_of_its_looks(bench: Bench) -> None:
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
