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
from tests.controllers.drivermachines import KIND, PATIENT, QUICK, SCRIPT, Bench
from tests.controllers.engine import Engine, Json, condition, is_true, named


@pytest_asyncio.fixture(loop_scope="session")
async def bench(engine: Engine) -> Bench:
    return await Bench.create(engine)


async def test_a_failed_attempt_is_repeated_on_the_same_machine(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        made = await bench.machine()
        first = await bench.job()
        await bench.fail(first, "quota exceeded")
        second = await bench.job()
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
        failing = await bench.says("Creating")
        assert failing["status"]["failures"] == 1
        for type in ("Ready", "CreateJob"):
            message = condition(failing, type)["message"]
            assert message.startswith("attempt 2 of 5, last error: quota exceeded: creating the server of ")

        await bench.succeed(second)
        found = await bench.ready()

    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert "failures" not in found["status"]
    assert "failureMessage" not in found["status"]


async def test_job_error_is_in_condition_and_failed_job_is_kept(bench: Bench) -> None:
    async with bench.running(PATIENT):
        await bench.cluster()
        await bench.machine()
        await bench.fail(await bench.job(), "no such image: ami-1")
        found = await bench.says("CreateError", type="CreateJob")
        await bench.settled()
        jobs = await bench.jobs()

    assert "no such image: ami-1" in condition(found, "Ready")["message"]
    assert found["status"]["failureReason"] == "CreateError"
    assert found["status"]["failureMessage"] == "no such image: ami-1"
    assert [named(job) for job in jobs] == ["m-machine-provision"], "its log can be read until the next attempt"


async def test_conditions_carry_one_line_of_a_long_error(bench: Bench) -> None:
    async with bench.running(PATIENT):
        await bench.cluster()
        await bench.machine()
        await bench.fail(await bench.job(), "Traceback:\n  in create\nQuotaError: no more of this size\n")
        found = await bench.says("CreateError", type="CreateJob")
        assert condition(found, "CreateJob")["message"] == (
            "attempt 1 of 5 to create the server failed: QuotaError: no more of this size"
        )
        assert found["status"]["failureMessage"].startswith("Traceback:\n")


async def test_permanent_failure_sets_ready_reason_stalled(bench: Bench) -> None:
    """The mark of a permanent failure, which Cluster API copies to InfrastructureReady of the Machine."""
    async with bench.running():
        await bench.cluster()
        await bench.machine()
        await bench.fail(await bench.job(), "size: there is no size huge", code=3)
        found = await bench.says("Stalled")
        await bench.settled()

    ready = condition(found, "Ready")
    assert (ready["status"], is_true(found, "Stalled")) == ("False", True)
    assert "last error: size: there is no size huge. The controller no longer retries." in ready["message"]


async def test_bootstrap_data_of_another_format_is_a_permanent_failure(bench: Bench) -> None:
    """No Job is made for it, and somebody who mends it can ask for another attempt."""
    secret = names.bootstrap_secret("m")
    async with bench.running():
        await bench.cluster()
        await bench.machine(bootstrapped=False)
        await bench.secret(secret, value=b"#cloud-config\n", format=b"cloud-config")
        await bench.engine.patch(
            MACHINE.target, bench.namespace, "m", {"spec": {"bootstrap": {"dataSecretName": secret}}}
        )
        found = await bench.says("BadBootstrapFormat", type="Stalled")
        await bench.settled()
        assert await bench.jobs() == []
        assert condition(found, "Ready")["reason"] == "Stalled"
        assert (
            f"{bench.namespace}/{secret} has bootstrap data in format cloud-config"
            in (condition(found, "Ready")["message"])
        )
        assert found["status"]["failureReason"] == "BadBootstrapFormat"

        data = {"value": base64.b64encode(SCRIPT).decode(), "format": base64.b64encode(b"script").decode()}
        await bench.engine.patch(SECRETS, bench.namespace, secret, {"data": data})
        await bench.annotate("remuda.dev/retry", "mended")
        await bench.succeed(await bench.job())
        assert not condition(await bench.ready(), "Stalled")


async def test_bad_options_stall_at_once_with_advice(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine()
        await bench.fail(await bench.job(), "size: there is no size huge", code=3)
        found = await bench.says("BadOptions", type="Stalled")
        await bench.settled()

    message = condition(found, "Stalled")["message"]
    assert "there is no size huge" in message
    assert "remuda.dev/retry" in message
    assert found["status"]["failures"] == 1


async def test_machine_stalls_after_five_failures_until_retry_annotation(bench: Bench) -> None:
    async with bench.running(msgspec.structs.replace(QUICK, pool_failures=100)):
        await bench.cluster()
        await bench.machine()
        for _ in range(5):
            await bench.fail(await bench.job())
        found = await bench.says("TooManyFailures", type="Stalled")
        await bench.settled()
        assert found["status"]["failures"] == 5

        await bench.annotate("remuda.dev/retry", "once more")
        job = await bench.job()
        found = await bench.says("Creating")
        assert not condition(found, "Stalled")
        assert found["status"]["retried"] == "once more"
        await bench.succeed(job)
        await bench.ready()


async def test_retry_annotation_value_triggers_one_attempt(bench: Bench) -> None:
    async with bench.running(PATIENT):
        await bench.cluster()
        await bench.machine()
        await bench.fail(await bench.job(), code=3)
        await bench.says("BadOptions", type="Stalled")
        await bench.annotate("remuda.dev/retry", "1")
        await bench.fail(await bench.job(), code=3)
        await bench.until(lambda obj: is_true(obj, "Stalled") and obj["status"].get("retried") == "1")
        await bench.settled()
        (job,) = await bench.jobs()
        assert job["status"]["failed"] == 1


async def test_pool_failure_history_outlives_deleted_machine(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        pool = await bench.deployment("workers")
        await bench.machine(pool="workers")
        await bench.fail(await bench.job(), "the cloud is on fire")
        await bench.job()
        await bench.delete()
        await bench.succeed(await bench.job(removes=True), State(phase="removed"))
        await bench.gone()

    found = await bench.failures("workers")
    (failure,) = msgspec.json.decode(found["data"]["state.json"])["history"]
    assert (failure["machine"], failure["message"], failure["attempt"]) == ("m", "the cloud is on fire", 1)
    assert "m attempt 1: the cloud is on fire" in found["data"]["failures"]
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("MachineDeployment", pool["metadata"]["uid"])


async def test_failures_are_owned_by_machine_set_or_cluster_without_deployment(bench: Bench) -> None:
    async with bench.running(PATIENT):
        await bench.cluster()
        pool = await bench.machine_set("herd")
        await bench.machine("a", of_set=pool)
        await bench.machine("b")
        for name in ("a", "b"):
            await bench.fail(await bench.job(name))
            await bench.says("CreateError", name)

    (of_set,) = (await bench.failures("herd"))["metadata"]["ownerReferences"]
    assert (of_set["kind"], of_set["uid"]) == ("MachineSet", pool["metadata"]["uid"])
    (of_cluster,) = (await bench.failures("c"))["metadata"]["ownerReferences"]
    assert of_cluster["kind"] == "Cluster"


async def test_failing_pool_tries_one_machine_at_a_time(bench: Bench) -> None:
    rules = Rules(first_seconds=0.2, most_seconds=0.5, machine_failures=50, pool_failures=1)
    async with bench.running(rules):
        await bench.cluster()
        await bench.deployment("workers")
        for name in ("a", "b", "c"):
            await bench.machine(name, pool="workers")
        for job in [await bench.job(name) for name in ("a", "b", "c")]:  # nothing has failed yet: all of them try
            await bench.fail(job)
        for _ in range(4):
            job = await _next(bench)
            await bench.settled()
            unfinished = [one for one in await bench.jobs() if not _finished(one)]
            assert [one["metadata"]["uid"] for one in unfinished] == [job["metadata"]["uid"]]
            await bench.fail(job)

        await bench.succeed(await _next(bench))
        others = await bench.engine.when(JOBS, bench.namespace, lambda jobs: _fresh(jobs, 2))
        assert len(others) == 2, "one success closes the circuit: the others need not wait for each other"


async def test_waiting_machine_names_machine_that_tries(bench: Bench) -> None:
    rules = Rules(first_seconds=0.05, most_seconds=0.05, machine_failures=50, pool_failures=1)
    async with bench.running(rules):
        await bench.cluster()
        await bench.deployment("workers")
        await bench.machine("a", pool="workers")
        await bench.fail(await bench.job("a"), "no")
        await bench.job("a")
        await bench.machine("b", pool="workers")
        found = await bench.says("PoolTriesOneAtATime", "b")
        assert "waiting for machine a" in condition(found, "Ready")["message"]


async def test_next_machine_tries_when_trying_machine_is_deleted(bench: Bench) -> None:
    rules = Rules(first_seconds=0.05, most_seconds=0.05, machine_failures=50, pool_failures=1)
    async with bench.running(rules):
        await bench.cluster()
        await bench.deployment("workers")
        await bench.machine("a", pool="workers")
        await bench.fail(await bench.job("a"), "no")
        await bench.job("a")
        await bench.machine("b", pool="workers")
        await bench.says("PoolTriesOneAtATime", "b")
        await bench.settled()
        await bench.delete("a")
        await bench.job("b")


async def test_failure_is_counted_once_across_controller_restarts(bench: Bench) -> None:
    async with bench.running(PATIENT):
        await bench.cluster()
        await bench.deployment("workers")
        await bench.machine(pool="workers")
        await bench.fail(await bench.job())
        await bench.says("CreateError", type="CreateJob")
    for lost in ({"failures": None, "countedJob": None, "lastFailureTime": None}, {}):
        if lost:  # it died after it had told the pool, and before it told the machine
            await bench.engine.status(KIND.target, bench.namespace, "m", lost)
        async with bench.running(PATIENT):
            await bench.until(lambda obj: obj["status"].get("failures") == 1)
            await bench.settled()
    found = msgspec.json.decode((await bench.failures("workers"))["data"]["state.json"])
    assert (found["failures"], len(found["history"])) == (1, 1)


async def test_vanished_job_is_recreated_without_counting_as_failure(bench: Bench) -> None:
    async with bench.running(PATIENT):
        await bench.cluster()
        await bench.machine()
        await bench.job()
        await bench.settled()
        await bench.engine.delete(JOBS, bench.namespace, names.provision("m"))
        await bench.succeed(await bench.job())
        assert "failures" not in (await bench.ready())["status"]


async def test_successful_job_without_server_counts_as_failure(bench: Bench) -> None:
    async with bench.running(PATIENT):
        await bench.cluster()
        await bench.machine()
        await bench.succeed(await bench.job(), State(phase="creating"))
        found = await bench.says("CreateError", type="CreateJob")
        assert "records no server" in condition(found, "Ready")["message"]


async def _next(bench: Bench) -> Json:
    """The one Job that runs, whichever machine it is of."""
    job: Json = await bench.engine.when(
        JOBS, bench.namespace, lambda jobs: next(iter(sorted(_fresh(jobs, 1), key=named)), None)
    )
    return job


def _fresh(jobs: list[Json], least: int) -> list[Json]:
    found = [job for job in jobs if not _finished(job) and not job["metadata"].get("deletionTimestamp")]
    return found if len(found) >= least else []


def _finished(job: Json) -> bool:
    return any(one["type"] in ("Complete", "Failed") for one in job.get("status", {}).get("conditions", ()))
