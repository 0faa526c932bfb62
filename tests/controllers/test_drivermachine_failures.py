"""Attempts that fail: repeated on the same machine, within a budget of its own and of its pool, and never forgotten."""

from __future__ import annotations

import base64

import msgspec
import pytest_asyncio

from remuda.capi.types import MACHINE
from remuda.kube.core import JOBS, SECRETS
from remuda.providers.shared import names
from remuda.providers.shared.jobs.budget import Rules
from remuda.providers.shared.jobs.state import State
from tests.controllers.driver_machine_harness import KIND, PATIENT, QUICK, SCRIPT, DriverMachineHarness
from tests.controllers.engine import Engine, Json, condition, is_true, named


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> DriverMachineHarness:
    return await DriverMachineHarness.create(engine)


async def test_failed_attempt_is_repeated_on_the_same_machine(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        made = await harness.machine()
        first = await harness.job()
        await harness.fail(first, "quota exceeded")
        second = await harness.job()
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
        failing = await harness.says("Creating")
        assert failing["status"]["failures"] == 1
        for type in ("Ready", "CreateJob"):
            message = condition(failing, type)["message"]
            assert message.startswith("attempt 2 of 5, last error: quota exceeded: creating the server of ")

        await harness.succeed(second)
        found = await harness.ready()

    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert "failures" not in found["status"]
    assert "failureMessage" not in found["status"]


async def test_job_error_is_in_condition_and_failed_job_is_kept(harness: DriverMachineHarness) -> None:
    async with harness.running(PATIENT):
        await harness.cluster()
        await harness.machine()
        await harness.fail(await harness.job(), "no such image: ami-1")
        found = await harness.says("CreateError", type="CreateJob")
        await harness.settled()
        jobs = await harness.jobs()

    assert "no such image: ami-1" in condition(found, "Ready")["message"]
    assert found["status"]["failureReason"] == "CreateError"
    assert found["status"]["failureMessage"] == "no such image: ami-1"
    assert [named(job) for job in jobs] == ["m-machine-provision"], "its log can be read until the next attempt"


async def test_conditions_carry_one_line_of_a_long_error(harness: DriverMachineHarness) -> None:
    async with harness.running(PATIENT):
        await harness.cluster()
        await harness.machine()
        await harness.fail(await harness.job(), "Traceback:\n  in create\nQuotaError: no more of this size\n")
        found = await harness.says("CreateError", type="CreateJob")
        assert condition(found, "CreateJob")["message"] == (
            "attempt 1 of 5 to create the server failed: QuotaError: no more of this size"
        )
        assert found["status"]["failureMessage"].startswith("Traceback:\n")


async def test_permanent_failure_sets_ready_reason_stalled(harness: DriverMachineHarness) -> None:
    """The mark of a permanent failure, which Cluster API copies to InfrastructureReady of the Machine."""
    async with harness.running():
        await harness.cluster()
        await harness.machine()
        await harness.fail(await harness.job(), "size: there is no size huge", code=3)
        found = await harness.says("Stalled")
        await harness.settled()

    ready = condition(found, "Ready")
    assert (ready["status"], is_true(found, "Stalled")) == ("False", True)
    assert "last error: size: there is no size huge. The controller no longer retries." in ready["message"]


async def test_bootstrap_data_of_another_format_is_a_permanent_failure(harness: DriverMachineHarness) -> None:
    """No Job is made for it, and somebody who mends it can ask for another attempt."""
    secret = names.bootstrap_secret("m")
    async with harness.running():
        await harness.cluster()
        await harness.machine(bootstrapped=False)
        await harness.secret(secret, value=b"#cloud-config\n", format=b"cloud-config")
        await harness.engine.patch(
            MACHINE.target, harness.namespace, "m", {"spec": {"bootstrap": {"dataSecretName": secret}}}
        )
        found = await harness.says("BadBootstrapFormat", type="Stalled")
        await harness.settled()
        assert await harness.jobs() == []
        assert condition(found, "Ready")["reason"] == "Stalled"
        assert (
            f"{harness.namespace}/{secret} has bootstrap data in format cloud-config"
            in (condition(found, "Ready")["message"])
        )
        assert found["status"]["failureReason"] == "BadBootstrapFormat"

        data = {"value": base64.b64encode(SCRIPT).decode(), "format": base64.b64encode(b"script").decode()}
        await harness.engine.patch(SECRETS, harness.namespace, secret, {"data": data})
        await harness.annotate("remuda.dev/retry", "mended")
        await harness.succeed(await harness.job())
        assert not condition(await harness.ready(), "Stalled")


async def test_bad_options_stall_at_once_with_advice(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.machine()
        await harness.fail(await harness.job(), "size: there is no size huge", code=3)
        found = await harness.says("BadOptions", type="Stalled")
        await harness.settled()

    message = condition(found, "Stalled")["message"]
    assert "there is no size huge" in message
    assert "remuda.dev/retry" in message
    assert found["status"]["failures"] == 1


async def test_machine_stalls_after_five_failures_until_retry_annotation(harness: DriverMachineHarness) -> None:
    async with harness.running(msgspec.structs.replace(QUICK, pool_failures=100)):
        await harness.cluster()
        await harness.machine()
        for _ in range(5):
            await harness.fail(await harness.job())
        found = await harness.says("TooManyFailures", type="Stalled")
        await harness.settled()
        assert found["status"]["failures"] == 5

        await harness.annotate("remuda.dev/retry", "once more")
        job = await harness.job()
        found = await harness.says("Creating")
        assert not condition(found, "Stalled")
        assert found["status"]["retried"] == "once more"
        await harness.succeed(job)
        await harness.ready()


async def test_retry_annotation_value_triggers_one_attempt(harness: DriverMachineHarness) -> None:
    async with harness.running(PATIENT):
        await harness.cluster()
        await harness.machine()
        await harness.fail(await harness.job(), code=3)
        await harness.says("BadOptions", type="Stalled")
        await harness.annotate("remuda.dev/retry", "1")
        await harness.fail(await harness.job(), code=3)
        await harness.until(lambda obj: is_true(obj, "Stalled") and obj["status"].get("retried") == "1")
        await harness.settled()
        (job,) = await harness.jobs()
        assert job["status"]["failed"] == 1


async def test_pool_failure_history_outlives_deleted_machine(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        pool = await harness.deployment("workers")
        await harness.machine(pool="workers")
        await harness.fail(await harness.job(), "the cloud is on fire")
        await harness.job()
        await harness.delete()
        await harness.succeed(await harness.job(removes=True), State(phase="removed"))
        await harness.gone()

    found = await harness.failures("workers")
    (failure,) = msgspec.json.decode(found["data"]["state.json"])["history"]
    assert (failure["machine"], failure["message"], failure["attempt"]) == ("m", "the cloud is on fire", 1)
    assert "m attempt 1: the cloud is on fire" in found["data"]["failures"]
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("MachineDeployment", pool["metadata"]["uid"])


async def test_failures_are_owned_by_machine_set_or_cluster_without_deployment(harness: DriverMachineHarness) -> None:
    async with harness.running(PATIENT):
        await harness.cluster()
        pool = await harness.machine_set("herd")
        await harness.machine("a", of_set=pool)
        await harness.machine("b")
        for name in ("a", "b"):
            await harness.fail(await harness.job(name))
            await harness.says("CreateError", name)

    (of_set,) = (await harness.failures("herd"))["metadata"]["ownerReferences"]
    assert (of_set["kind"], of_set["uid"]) == ("MachineSet", pool["metadata"]["uid"])
    (of_cluster,) = (await harness.failures("c"))["metadata"]["ownerReferences"]
    assert of_cluster["kind"] == "Cluster"


async def test_failing_pool_tries_one_machine_at_a_time(harness: DriverMachineHarness) -> None:
    rules = Rules(first_seconds=0.2, most_seconds=0.5, machine_failures=50, pool_failures=1)
    async with harness.running(rules):
        await harness.cluster()
        await harness.deployment("workers")
        for name in ("a", "b", "c"):
            await harness.machine(name, pool="workers")
        for job in [await harness.job(name) for name in ("a", "b", "c")]:  # nothing has failed yet: all of them try
            await harness.fail(job)
        for _ in range(4):
            job = await _next(harness)
            await harness.settled()
            unfinished = [one for one in await harness.jobs() if not _finished(one)]
            assert [one["metadata"]["uid"] for one in unfinished] == [job["metadata"]["uid"]]
            await harness.fail(job)

        await harness.succeed(await _next(harness))
        others = await harness.engine.when(JOBS, harness.namespace, lambda jobs: _fresh(jobs, 2))
        assert len(others) == 2, "one success closes the circuit: the others need not wait for each other"


async def test_waiting_machine_names_machine_that_tries(harness: DriverMachineHarness) -> None:
    rules = Rules(first_seconds=0.05, most_seconds=0.05, machine_failures=50, pool_failures=1)
    async with harness.running(rules):
        await harness.cluster()
        await harness.deployment("workers")
        await harness.machine("a", pool="workers")
        await harness.fail(await harness.job("a"), "no")
        await harness.job("a")
        await harness.machine("b", pool="workers")
        found = await harness.says("PoolTriesOneAtATime", "b")
        assert "waiting for machine a" in condition(found, "Ready")["message"]


async def test_next_machine_tries_when_trying_machine_is_deleted(harness: DriverMachineHarness) -> None:
    rules = Rules(first_seconds=0.05, most_seconds=0.05, machine_failures=50, pool_failures=1)
    async with harness.running(rules):
        await harness.cluster()
        await harness.deployment("workers")
        await harness.machine("a", pool="workers")
        await harness.fail(await harness.job("a"), "no")
        await harness.job("a")
        await harness.machine("b", pool="workers")
        await harness.says("PoolTriesOneAtATime", "b")
        await harness.settled()
        await harness.delete("a")
        await harness.job("b")


async def test_failure_is_counted_once_across_controller_restarts(harness: DriverMachineHarness) -> None:
    async with harness.running(PATIENT):
        await harness.cluster()
        await harness.deployment("workers")
        await harness.machine(pool="workers")
        await harness.fail(await harness.job())
        await harness.says("CreateError", type="CreateJob")
    for lost in ({"failures": None, "countedJob": None, "lastFailureTime": None}, {}):
        if lost:  # it died after it had told the pool, and before it told the machine
            await harness.engine.status(KIND.target, harness.namespace, "m", lost)
        async with harness.running(PATIENT):
            await harness.until(lambda obj: obj["status"].get("failures") == 1)
            await harness.settled()
    found = msgspec.json.decode((await harness.failures("workers"))["data"]["state.json"])
    assert (found["failures"], len(found["history"])) == (1, 1)


async def test_vanished_job_is_recreated_without_counting_as_failure(harness: DriverMachineHarness) -> None:
    async with harness.running(PATIENT):
        await harness.cluster()
        await harness.machine()
        await harness.job()
        await harness.settled()
        await harness.engine.delete(JOBS, harness.namespace, names.provision("m"))
        await harness.succeed(await harness.job())
        assert "failures" not in (await harness.ready())["status"]


async def test_successful_job_without_server_counts_as_failure(harness: DriverMachineHarness) -> None:
    async with harness.running(PATIENT):
        await harness.cluster()
        await harness.machine()
        await harness.succeed(await harness.job(), State(phase="creating"))
        found = await harness.says("CreateError", type="CreateJob")
        assert "records no server" in condition(found, "Ready")["message"]


async def _next(harness: DriverMachineHarness) -> Json:
    """The one Job that runs, whichever machine it is of."""
    job: Json = await harness.engine.when(
        JOBS, harness.namespace, lambda jobs: next(iter(sorted(_fresh(jobs, 1), key=named)), None)
    )
    return job


def _fresh(jobs: list[Json], least: int) -> list[Json]:
    found = [job for job in jobs if not _finished(job) and not job["metadata"].get("deletionTimestamp")]
    return found if len(found) >= least else []


def _finished(job: Json) -> bool:
    return any(one["type"] in ("Complete", "Failed") for one in job.get("status", {}).get("conditions", ()))
