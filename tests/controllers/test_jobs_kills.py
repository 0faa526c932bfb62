"""The job runner killed as `kill -9` does: no program outlives it, and its Jobs go on."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remuda.jobs.log_file import LogReader
from remuda.kube.core import JOBS, PODS
from remuda.runtime.steps import CRASHED
from tests.controllers.engine import PATIENCE_SECONDS, Engine, eventually, is_true
from tests.controllers.jobs import Runner, alive, finished, job, pod_of, running

STEPS = ["jobrunner.create-pod", "jobrunner.start-program", "jobrunner.save-pod", "jobrunner.save-job"]


@asynccontextmanager
async def a_runner(
    engine: Engine, namespace: str, directory: Path, crash_at: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.lab.job_runner", str(engine.kubeconfig), namespace, str(directory),
        stderr=asyncio.subprocess.PIPE, env={**os.environ, "REMUDA_CRASH_AT": crash_at},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def dies(engine: Engine, namespace: str, directory: Path, point: str) -> None:
    """A runner that gets as far as this point."""
    async with a_runner(engine, namespace, directory, point) as process:
        assert process.stderr is not None
        said = (await asyncio.wait_for(process.stderr.read(), PATIENCE_SECONDS)).decode()
        assert f"{CRASHED} {point}" in said


async def test_no_program_outlives_a_killed_runner(engine: Engine, tmp_path: Path) -> None:
    namespace = await engine.namespace()
    gate = tmp_path / "gate"
    words = ["pid", "spawn", "600", "stubborn", "wait-for", str(gate)]
    await Runner(engine, tmp_path).submit(namespace, job("long", *words))
    async with a_runner(engine, namespace, tmp_path) as process:
        pod = await pod_of(engine, namespace, "long", running)
        log = LogReader(tmp_path / "jobs" / pod["metadata"]["uid"] / "log")

        async def has_spawned() -> bool:
            return b"spawned" in log.read(0)[0]

        await eventually(has_spawned)
        pids = [int(pid) for pid in re.findall(rb"(?:pid|spawned) (\d+)", log.read(0)[0])]
        assert all(map(alive, pids))
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def gone() -> bool:
        return not any(map(alive, pids))

    await eventually(gone)
    gate.touch()
    runner = Runner(engine, tmp_path)
    async with engine.running(namespace, runner.setup):
        assert is_true(await finished(engine, namespace, "long"), "Complete")


@pytest.mark.parametrize("point", [f"{name}:{when}" for name in STEPS for when in ("before", "after")])
async def test_job_runs_once_when_runner_is_killed_at_any_step(engine: Engine, tmp_path: Path, point: str) -> None:
    namespace = await engine.namespace()
    await Runner(engine, tmp_path).submit(namespace, job("work", "say", "hello"))
    await dies(engine, namespace, tmp_path, point)
    runner = Runner(engine, tmp_path)
    async with engine.running(namespace, runner.setup):
        done = await finished(engine, namespace, "work")
        pods = await engine.list(PODS, namespace)
    assert is_true(done, "Complete")
    assert not done["status"].get("failed")
    assert [pod["status"]["phase"] for pod in pods].count("Succeeded") == 1
    assert len(pods) <= 2


@pytest.mark.parametrize("when", ["before", "after"])
async def test_expired_job_is_deleted_when_runner_is_killed(engine: Engine, tmp_path: Path, when: str) -> None:
    if engine.name == "kubernetes":
        pytest.skip("kube-controller-manager deletes it too, whoever is faster")
    namespace = await engine.namespace()
    await Runner(engine, tmp_path).submit(namespace, job("brief", "say", "hello", ttlSecondsAfterFinished=0))
    await dies(engine, namespace, tmp_path, f"jobrunner.delete-job:{when}")
    runner = Runner(engine, tmp_path)
    async with engine.running(namespace, runner.setup):
        await engine.gone(JOBS, namespace, "brief")
        await engine.when(PODS, namespace, lambda pods: not pods)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_suspended_job_has_no_pod_when_runner_is_killed(engine: Engine, tmp_path: Path, when: str) -> None:
    namespace = await engine.namespace()
    gate = tmp_path / "gate"
    await Runner(engine, tmp_path).submit(namespace, job("pause", "wait-for", str(gate)))

    async def suspend() -> None:
        await pod_of(engine, namespace, "pause", running)
        await engine.patch(JOBS, namespace, "pause", {"spec": {"suspend": True}})

    await asyncio.gather(suspend(), dies(engine, namespace, tmp_path, f"jobrunner.delete-pod:{when}"))
    runner = Runner(engine, tmp_path)
    async with engine.running(namespace, runner.setup):
        await engine.until(JOBS, namespace, "pause", lambda found: is_true(found, "Suspended"))
        await engine.when(PODS, namespace, lambda pods: not any(map(running, pods)))
        gate.touch()
        await engine.patch(JOBS, namespace, "pause", {"spec": {"suspend": False}})
        assert is_true(await finished(engine, namespace, "pause"), "Complete")
