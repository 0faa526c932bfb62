"""Steps, and processes that die at them as by `kill -9`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.kube.leadership import permit
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import CRASHED, all_steps, step
from tests.lab.limits import LIMIT_SECONDS

SCRIPT = """
import asyncio, sys
from remuda.runtime.steps import step
WRITE = step("test.write", "writes a line")
OTHER = step("test.other", "writes another")
def say(text):
    sys.stdout.write(text); sys.stdout.flush()
async def main():
    for turn in range(3):
        async with WRITE:
            say(f"w{turn} ")
        async with OTHER:
            say(f"o{turn} ")
    try:
        async with WRITE:
            raise ValueError
    except ValueError:
        say(f"taken {WRITE.taken}")
asyncio.run(main())
"""


def crashing(at: str, once: str = "") -> tuple[int, str, str]:
    environment = {**os.environ, "REMUDA_CRASH_AT": at, "REMUDA_CRASH_ONCE": once}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    return done.returncode, done.stdout, done.stderr.strip()


@pytest.mark.parametrize(
    ("at", "said", "point"),
    [
        ("test.write", "w0 ", "test.write:after"),
        ("test.write:before", "", "test.write:before"),
        ("test.write:after@2", "w0 o0 w1 ", "test.write:after"),
        ("test.other:before@3", "w0 o0 w1 o1 w2 ", "test.other:before"),
        ("test.write@3,test.other@2", "w0 o0 w1 o1 ", "test.other:after"),
        ("*@3", "w0 ", "test.other:before"),
        ("*@4", "w0 o0 ", "test.other:after"),
    ],
)
def test_process_crashes_at_configured_step_and_names_crash_point(at: str, said: str, point: str) -> None:
    assert crashing(at) == (-signal.SIGKILL, said, f"{CRASHED} {point}")


def test_crash_point_is_used_only_once_per_directory(tmp_path: Path) -> None:
    both = "test.write:before,test.other:after"
    assert [crashing(both, str(tmp_path))[1] for _ in range(3)] == ["", "w0 o0 ", "w0 o0 w1 o1 w2 o2 taken 3"]
    assert {path.name for path in tmp_path.iterdir()} == set(both.split(","))


def test_crash_point_can_be_set_programmatically() -> None:
    told = SCRIPT.replace(
        "asyncio.run", "from remuda.runtime.steps import crash_at\ncrash_at('test.other@2')\nasyncio.run"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "w0 o0 w1 o1 ")


def test_failed_step_is_not_counted_and_does_not_crash() -> None:
    assert crashing("test.write@4") == (0, "w0 o0 w1 o1 w2 o2 taken 3", "")


async def test_step_is_not_taken_without_permit() -> None:
    act = step("test-permit.act", "acts")
    done: list[int] = []

    async def run(ask: Callable[[], None] | None) -> None:
        permit.set(ask)
        async with act:
            done.append(act.taken)

    def refuse() -> None:
        raise Retryable("not now")

    await asyncio.create_task(run(None))
    with pytest.raises(Retryable, match="not now"):
        await asyncio.create_task(run(refuse))
    await asyncio.create_task(run(lambda: None))
    assert (done, act.taken) == ([0, 1], 2)


def test_step_names_are_unique_and_listed() -> None:
    mine = step("test-steps.mine", "is declared by this test")
    with pytest.raises(ValueError, match=r"two steps are called test-steps\.mine"):
        step("test-steps.mine", "again")
    names = [known.name for known in all_steps()]
    assert mine.name in names
    assert names == sorted(names)
    assert repr(mine) == "<step test-steps.mine>"
