"""Jobs as tasks of this loop: they end, fail and can be stopped like programs do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from remuda.jobs.in_process import InProcess
from remuda.jobs.launcher import LaunchSpec
from remuda.jobs.pod_inputs import PodInputs
from remuda.jobs.pod_log import last_lines
from tests.lab.limits import LIMIT_SECONDS

WORK = LaunchSpec(uid="1", name="default/job", materials=PodInputs(files={}, directories=()))


async def test_in_process_program_returns_exit_code_message_and_log() -> None:
    async def program(work: LaunchSpec, say: Callable[[str], None]) -> int:
        say(f"working on {work.name}")
        return 3

    launcher = InProcess(program)
    started = await launcher.start(WORK)
    assert await started.wait() == 3
    assert started.termination_message() == "working on default/job"
    assert last_lines(launcher.log("1"), 10, 1000) == "working on default/job\n"
    await launcher.forget("1")
    assert launcher.log("1") is None


async def test_in_process_exception_becomes_exit_code_1_with_message() -> None:
    async def program(work: LaunchSpec, say: Callable[[str], None]) -> int:
        raise RuntimeError("no idea")

    started = await InProcess(program).start(WORK)
    assert await started.wait() == 1
    assert started.termination_message() == "RuntimeError: no idea"


async def test_in_process_program_can_be_terminated() -> None:
    async def program(work: LaunchSpec, say: Callable[[str], None]) -> int:
        await asyncio.sleep(3600)
        return 0

    started = await InProcess(program).start(WORK)
    await asyncio.sleep(0)
    started.terminate()
    async with asyncio.timeout(LIMIT_SECONDS):
        assert await started.wait() == 143
