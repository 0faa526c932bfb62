"""The job runner: Jobs that ask for it run as programs here, and their objects tell of it as Kubernetes' do."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from remuda.jobs import FOLLOWS
from remuda.kube.core import JOBS, PODS, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.errors import StatusError
from tests.controllers.engine import PATIENCE_SECONDS, Engine, condition, eventually, is_true
from tests.controllers.jobs import Runner, alive, ended, finished, job, pod_of, running

Json = dict[str, Any]


@pytest.fixture
def runner(engine: Engine, tmp_path: Path) -> Runner:
    return Runner(engine, tmp_path)


async def test_job_runs_and_is_complete_with_its_log(engine: Engine, runner: Runner) -> None:
    namespace = await engine.namespace()
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("hello", "say", "good morning", "say", "good night"))
        done = await finished(engine, namespace, "hello")
        pod = await pod_of(engine, namespace, "hello")
        text = await runner.log(pod)
    assert is_true(done, "Complete")
    assert is_true(done, "SuccessCriteriaMet")
    assert done["status"]["succeeded"] == 1
    assert not done["status"].get("active")
    assert done["status"]["startTime"] <= done["status"]["completionTime"]
    assert pod["status"]["phase"] == "Succeeded"
    assert (ended(pod)["exitCode"], ended(pod)["reason"]) == (0, "Completed")
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "hello"
    assert pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == done["metadata"]["uid"]
    assert text == "good morning\ngood night\n"


async def test_job_runs_remuda_program_by_default(engine: Engine, tmp_path: Path) -> None:
    from remuda.jobs.runner import JobRunner

    namespace = await engine.namespace()
    runner = Runner(engine, tmp_path)

    def setup(manager: Any) -> None:
        runner.runner = JobRunner(manager, runner.settings)

    async with engine.running(namespace, setup):
        await runner.submit(namespace, job("bare"))
        assert is_true(await finished(engine, namespace, "bare"), "Failed")
        assert "cannot read the order of this Job" in ended(await pod_of(engine, namespace, "bare"))["message"]


async def test_failing_program_fails_the_job_with_its_last_lines(engine: Engine, runner: Runner) -> None:
    namespace = await engine.namespace()
    container = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("bad", "say", "the quota is spent", "exit", "3", container=container))
        failed = await finished(engine, namespace, "bad")
        pod = await pod_of(engine, namespace, "bad")
    assert condition(failed, "Failed")["reason"] == "BackoffLimitExceeded"
    assert is_true(failed, "FailureTarget")
    assert failed["status"]["failed"] == 1
    assert pod["status"]["phase"] == "Failed"
    assert (ended(pod)["exitCode"], ended(pod)["message"]) == (3, "the quota is spent\n")


async def test_termination_log_becomes_container_message(engine: Engine, runner: Runner) -> None:
    namespace = await engine.namespace()
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("words", "say", "noise", "last-words", "no such image", "exit", "1"))
        await finished(engine, namespace, "words")
        assert ended(await pod_of(engine, namespace, "words"))["message"] == "no such image"


async def test_program_gets_its_volumes_and_no_runner_environment(
    engine: Engine, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_RUNNER", "hush")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    namespace = await engine.namespace()
    await engine.create(SECRETS, namespace, {"metadata": {"name": "given"}, "data": {"order.json": "e30="}})
    container = {"volumeMounts": [{"name": "order", "mountPath": "/run/secrets/machine"}]}
    pod_spec = {"volumes": [{"name": "order", "secret": {"secretName": "given"}}]}
    words = [
        "show-file", "/run/secrets/machine/order.json", "show-env", "SECRET_OF_THE_RUNNER", "show-env", "PYTHONPATH",
        "show-env", "REMUDA_JOB_DIRECTORY",
    ]  # fmt: skip
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("look", *words, container=container, pod=pod_spec))
        assert is_true(await finished(engine, namespace, "look"), "Complete")
        pod = await pod_of(engine, namespace, "look")
        lines = (await runner.log(pod)).splitlines()
    assert lines == [
        "600 {}",
        "SECRET_OF_THE_RUNNER=None",
        "PYTHONPATH=None",
        f"REMUDA_JOB_DIRECTORY={runner.settings.hosts}",
    ]
    left = runner.directory / pod["metadata"]["uid"]
    assert [path.name for path in left.iterdir()] == ["log"], "credentials stay only while the program runs"


async def test_job_service_account_has_only_its_role_permissions(engine: Engine, runner: Runner) -> None:
    namespace = await engine.namespace()
    for name in ("mine", "theirs"):
        await engine.create(SECRETS, namespace, {"metadata": {"name": name}})
    await engine.create(SERVICE_ACCOUNTS, namespace, {"metadata": {"name": "worker"}})
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get"]}
    await engine.create(ROLES, namespace, {"metadata": {"name": "worker"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "worker"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "worker"},
        "subjects": [{"kind": "ServiceAccount", "name": "worker", "namespace": namespace}],
    }
    await engine.create(ROLE_BINDINGS, namespace, binding)
    words = ["read-secret", "mine", "read-secret", "theirs"]
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("reader", *words, pod={"serviceAccountName": "worker"}))
        assert is_true(await finished(engine, namespace, "reader"), "Complete")
        assert await runner.log(await pod_of(engine, namespace, "reader")) == "read mine\n403 Forbidden\n"


async def test_job_managed_by_other_controller_is_ignored(engine: Engine, runner: Runner) -> None:
    namespace = await engine.namespace()
    foreign = job("foreign", "say", "hello")
    foreign["spec"]["managedBy"] = "example.com/other"
    async with engine.running(namespace, runner.setup):
        await engine.create(JOBS, namespace, foreign)
        await runner.submit(namespace, job("ours", "say", "hello"))
        await finished(engine, namespace, "ours")
        found = await engine.get(JOBS, namespace, "foreign")
        pods = await engine.list(PODS, namespace)
    assert found is not None
    assert found["status"] == {}
    assert [pod["metadata"]["labels"]["job-name"] for pod in pods] == ["ours"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"command": ["bash"]}, "the command must be remuda machine-job, not bash"),
        ({"parallelism": 2, "completions": 2}, "parallelism, completions and completionMode"),
        ({"pod": {"restartPolicy": "OnFailure"}}, "restartPolicy must be Never, not OnFailure"),
        (
            {
                "pod": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
                "container": {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            },
            "the type of volume v is not supported",
        ),
    ],
)
async def test_unsupported_job_fails_at_once_with_reason(
    engine: Engine, runner: Runner, changed: Json, words: str
) -> None:
    namespace = await engine.namespace()
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("odd", "say", "hello", **changed))
        failed = await finished(engine, namespace, "odd")
    assert condition(failed, "Failed")["reason"] == "NotRunnable"
    assert words in condition(failed, "Failed")["message"]


LATE = {"volumeMounts": [{"name": "late", "mountPath": "/run/late"}]}
LATE_VOLUME = {"volumes": [{"name": "late", "secret": {"secretName": "late"}}]}
LATE_CONTENT = {"secrets/late": {"WORD": b"here"}}


async def test_job_waits_for_missing_secret(engine: Engine, runner: Runner) -> None:
    namespace = await engine.namespace()
    async with engine.running(namespace, runner.setup):
        patient = job("patient", "show-file", "/run/late/WORD", container=LATE, pod=LATE_VOLUME)
        await runner.submit(namespace, patient, LATE_CONTENT)
        waiting = await pod_of(engine, namespace, "patient", lambda pod: pod["status"].get("containerStatuses"))
        state = waiting["status"]["containerStatuses"][0]["state"]["waiting"]
        assert (state["reason"], state["message"]) == ("CreateContainerConfigError", "secret 'late' not found")
        await engine.create(SECRETS, namespace, {"metadata": {"name": "late"}, "stringData": {"WORD": "here"}})
        assert is_true(await finished(engine, namespace, "patient"), "Complete")
        assert await runner.log(await pod_of(engine, namespace, "patient")) == "600 here\n"


async def test_deadline_kills_program_and_its_children(engine: Engine, runner: Runner) -> None:
    namespace = await engine.namespace()
    words = ["pid", "spawn", "600", "stubborn", "say", "ready", "sleep", "600"]
    pod_spec = {"terminationGracePeriodSeconds": 1}
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("slow", *words, activeDeadlineSeconds=6, pod=pod_spec))
        failed = await finished(engine, namespace, "slow")
        pod = await pod_of(engine, namespace, "slow")
        pids = [int(pid) for pid in re.findall(r"(?:pid|spawned) (\d+)", await runner.log(pod))]
    assert condition(failed, "Failed")["reason"] == "DeadlineExceeded"
    assert ended(pod)["exitCode"] == 137
    assert len(pids) == 2
    assert not any(map(alive, pids))


async def test_program_start_failure_is_reported_as_start_error(
    engine: Engine, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = await engine.namespace()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("lame", "say", "hello"))
        failed = await finished(engine, namespace, "lame")
        end = ended(await pod_of(engine, namespace, "lame"))
    assert condition(failed, "Failed")["reason"] == "BackoffLimitExceeded"
    assert "cannot start the program: [Errno 2] No such file or directory" in condition(failed, "Failed")["message"]
    assert (end["reason"], end["exitCode"]) == ("StartError", 127)
    assert "/nowhere/python" in end["message"]


async def test_deleted_job_ends_its_program_before_same_name_starts(
    engine: Engine, runner: Runner, tmp_path: Path
) -> None:
    namespace = await engine.namespace()
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("work", "pid", "sleep", "600"))
        first = await pod_of(engine, namespace, "work", running)
        await eventually(lambda: said(runner, first, "pid"))
        pid = int((await runner.log(first)).split()[1])
        await engine.client.delete(JOBS, namespace, "work", propagation="Background")
        await engine.gone(JOBS, namespace, "work")
        await runner.submit(namespace, job("work", "say", "second"))
        assert is_true(await finished(engine, namespace, "work"), "Complete")
        assert not alive(pid)
        uid = first["metadata"]["uid"]
        await eventually(lambda: absent(runner.directory / uid))


async def test_follow_up_job_waits_for_end_of_previous_program(engine: Engine, runner: Runner) -> None:
    """Also when the other Job and its Pod are gone: two programs never work on one server."""
    namespace = await engine.namespace()
    async with engine.running(namespace, runner.setup):
        grace = {"terminationGracePeriodSeconds": 3}
        await runner.submit(namespace, job("first", "stubborn", "pid", "sleep", "600", pod=grace))
        first = await pod_of(engine, namespace, "first", running)
        await eventually(lambda: said(runner, first, "pid"))
        pid = int((await runner.log(first)).split()[1])
        await engine.client.delete(JOBS, namespace, "first", propagation="Background")
        await engine.gone(JOBS, namespace, "first")
        second = job("second", "say", "hello")
        second["metadata"]["annotations"][FOLLOWS] = f"{namespace}/first"
        await runner.submit(namespace, second)
        assert is_true(await finished(engine, namespace, "second"), "Complete")
        assert not alive(pid)


async def said(runner: Runner, pod: Json, word: str) -> bool:
    return word in await runner.log(pod)


async def absent(path: Path) -> bool:
    return not path.exists()


async def test_failed_attempt_is_retried_up_to_backoff_limit(
    engine: Engine, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.jobs.decisions._FIRST_WAIT_SECONDS", 0.2)
    namespace = await engine.namespace()
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("again", "exit", "1", backoffLimit=2))
        failed = await finished(engine, namespace, "again")
        pods = await engine.list(PODS, namespace)
    assert failed["status"]["failed"] == 3
    assert len(pods) == 3
    assert len({pod["metadata"]["name"] for pod in pods}) == 3


async def test_restarted_runner_reruns_interrupted_job_without_counting_failure(
    engine: Engine, runner: Runner, tmp_path: Path
) -> None:
    namespace = await engine.namespace()
    gate = tmp_path / "gate"
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("long", "wait-for", str(gate), "say", "through"))
        first = await pod_of(engine, namespace, "long", running)
    gate.touch()
    async with engine.running(namespace, runner.setup):
        done = await finished(engine, namespace, "long")
        pods = {pod["metadata"]["name"]: pod for pod in await engine.list(PODS, namespace)}
    lost = pods.pop(first["metadata"]["name"])
    assert (lost["status"]["phase"], lost["status"]["reason"]) == ("Failed", "RunnerRestarted")
    assert is_true(done, "Complete"), "the runner was the cause, so it does not count against the Job"
    assert not done["status"].get("failed")
    assert [pod["status"]["phase"] for pod in pods.values()] == ["Succeeded"]


async def test_suspended_job_stops_and_resumes(engine: Engine, runner: Runner, tmp_path: Path) -> None:
    namespace = await engine.namespace()
    gate = tmp_path / "gate"
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("pause", "wait-for", str(gate)))
        await pod_of(engine, namespace, "pause", running)
        await engine.patch(JOBS, namespace, "pause", {"spec": {"suspend": True}})
        held = await engine.until(JOBS, namespace, "pause", lambda found: is_true(found, "Suspended"))
        assert not held["status"].get("active")
        assert await engine.list(PODS, namespace) == []
        gate.touch()
        await engine.patch(JOBS, namespace, "pause", {"spec": {"suspend": False}})
        assert is_true(await finished(engine, namespace, "pause"), "Complete")


async def test_finished_job_is_deleted_after_ttl(engine: Engine, runner: Runner) -> None:
    namespace = await engine.namespace()
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("brief", "say", "hello", ttlSecondsAfterFinished=1))
        await engine.gone(JOBS, namespace, "brief")
        await engine.when(PODS, namespace, lambda pods: not pods)
        await eventually(lambda: empty(runner.directory))


async def empty(path: Path) -> bool:
    return not list(path.iterdir())


async def test_runner_limits_concurrent_jobs(engine: Engine, tmp_path: Path) -> None:
    namespace = await engine.namespace()
    runner = Runner(engine, tmp_path, concurrency=2)
    gate = tmp_path / "gate"
    async with engine.running(namespace, runner.setup) as manager:
        for number in range(4):
            await runner.submit(namespace, job(f"job-{number}", "wait-for", str(gate)))
        await engine.when(PODS, namespace, lambda pods: sum(map(running, pods)) == 2)
        await eventually(lambda: waiting(manager, 2))
        # another Pod may be there: one that was held because its account was missing
        assert sum(map(running, await engine.list(PODS, namespace))) == 2
        gate.touch()
        for number in range(4):
            assert is_true(await finished(engine, namespace, f"job-{number}"), "Complete")


async def waiting(manager: Any, count: int) -> bool:
    waits = manager.controllers["job-runner"].waits.values()
    return [wait.blocked.reason for wait in waits].count("WaitingForTurn") == count


async def test_log_follow_streams_until_program_ends(engine: Engine, runner: Runner, tmp_path: Path) -> None:
    namespace = await engine.namespace()
    gate = tmp_path / "gate"
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("talk", "say", "one", "wait-for", str(gate), "say", "two"))
        pod = await pod_of(engine, namespace, "talk", running)
        assert runner.runner is not None
        source = runner.runner.log_source(pod, {"follow": "true"})
        assert source is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await anext(source) == b"one\n"
            gate.touch()
            assert b"".join([chunk async for chunk in source]) == b"two\n"


async def test_large_log_keeps_beginning_and_end(engine: Engine, runner: Runner) -> None:
    namespace = await engine.namespace()
    words = ["say", "begin", "flood", "40", "line", "3000000", "say", "the end"]
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("flood", *words))
        assert is_true(await finished(engine, namespace, "flood"), "Complete")
        pod = await pod_of(engine, namespace, "flood")
        text = await runner.log(pod)
        tail = await runner.log(pod, tailLines="1")
        begin = await runner.log(pod, limitBytes="5")
    size = sum(path.stat().st_size for path in runner.directory.rglob("*.log"))
    assert size < 12 * 1024 * 1024
    assert text.startswith("begin\nyyy")
    assert text.endswith("x\nthe end\n")
    assert "x" * 3_000_000 in text
    assert tail == "the end\n"
    assert begin == "begin"


async def test_deleted_pod_is_replaced_by_new_attempt(engine: Engine, runner: Runner, tmp_path: Path) -> None:
    namespace = await engine.namespace()
    gate = tmp_path / "gate"
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("robbed", "wait-for", str(gate)))
        pod = await pod_of(engine, namespace, "robbed", running)
        await engine.delete(PODS, namespace, pod["metadata"]["name"])
        uid = pod["metadata"]["uid"]
        await pod_of(engine, namespace, "robbed", lambda found: running(found) and found["metadata"]["uid"] != uid)
        gate.touch()
        assert is_true(await finished(engine, namespace, "robbed"), "Complete")


async def test_finished_job_causes_no_further_writes(engine: Engine, runner: Runner) -> None:
    namespace = await engine.namespace()
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("quiet", "say", "hello"))
        before = await finished(engine, namespace, "quiet")
    async with engine.running(namespace, runner.setup) as manager:
        await eventually(lambda: idle(manager))
        after = await engine.get(JOBS, namespace, "quiet")
    assert after is not None
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def idle(manager: Any) -> bool:
    return bool(manager.idle)


async def test_log_of_unstarted_pod_is_rejected(engine: Engine, runner: Runner) -> None:
    namespace = await engine.namespace()
    async with engine.running(namespace, runner.setup):
        await runner.submit(namespace, job("mute", "say", "x", container=LATE, pod=LATE_VOLUME), LATE_CONTENT)
        pod = await pod_of(engine, namespace, "mute")
        with pytest.raises(StatusError, match="is waiting to start"):
            await runner.log(pod)
