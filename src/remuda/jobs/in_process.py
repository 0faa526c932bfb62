"""Launcher that runs a Job's program as a task of this event loop, for simulations with thousands of short Jobs.

Nothing is written to disk, and only the end of the log is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from remuda.jobs import log_file
from remuda.jobs.launcher import LaunchSpec
from remuda.jobs.pods import LONGEST_MESSAGE
from remuda.kube import clock

Say = Callable[[str], None]
Program = Callable[[LaunchSpec, Say], Awaitable[int]]  # logs with `Say`, and returns its exit code

_KEPT_BYTES = 16 * 1024
_TERMINATED = 143


class InProcess:
    needs_kubeconfig = False

    def __init__(self, program: Program) -> None:
        self._program = program
        self._logs: dict[str, MemoryLog] = {}

    async def start(self, work: LaunchSpec) -> TaskStarted:
        log = self._logs[work.uid] = MemoryLog()
        return TaskStarted(self._program, work, log)

    def log(self, uid: str) -> MemoryLog | None:
        return self._logs.get(uid)

    async def tidy(self, uid: str) -> None:
        """Do nothing: there are no files."""

    async def forget(self, uid: str) -> None:
        self._logs.pop(uid, None)

    async def sweep(self, known: set[str]) -> None:
        """Do nothing: no program outlives the process."""


class TaskStarted:
    def __init__(self, program: Program, work: LaunchSpec, log: MemoryLog) -> None:
        self._log = log
        self._last = ""
        self._task = asyncio.get_running_loop().create_task(self._run(program, work), name=f"job {work.name}")

    async def _run(self, program: Program, work: LaunchSpec) -> int:
        return await program(work, self._say)

    def _say(self, text: str) -> None:
        self._last = text
        self._log.write(text)

    async def wait(self) -> int:
        try:
            # The shield keeps the program running when only the task that waits for it is cancelled.
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            # Only the cancellation of the program is an exit code. A cancellation of the waiting task must be raised.
            if self._task.cancelled():
                return _TERMINATED
            raise
        except Exception as error:
            self._say(f"{type(error).__name__}: {error}")
            return 1

    def terminate(self) -> None:
        self._task.cancel()

    kill = terminate

    def termination_message(self) -> str:
        return self._last[-LONGEST_MESSAGE:]


class MemoryLog:
    def __init__(self) -> None:
        self._data = b""
        self._start = 0

    def write(self, text: str) -> None:
        added, _ = log_file.lines(f"{text}\n".encode(), log_file.stamp(clock.time()))
        self._data += added
        if len(self._data) > _KEPT_BYTES:
            cut = self._data.find(b"\n", len(self._data) - _KEPT_BYTES) + 1
            self._data, self._start = self._data[cut:], self._start + cut

    def read(self, position: int) -> tuple[bytes, int]:
        end = self._start + len(self._data)
        return (b"", position) if position >= end else (self._data[max(0, position - self._start) :], end)

    def tail(self, count: int) -> int:
        at = len(self._data)
        for _ in range(count):
            at = self._data.rfind(b"\n", 0, max(0, at - 1)) + 1
        return self._start + at
