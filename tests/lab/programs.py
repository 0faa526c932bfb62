"""Programs, ours unless said otherwise, as processes that a test kills, and starts again as a supervisor would.

A program keeps one log over all its lives, so that a failure can be read from the beginning. Its end is told by the
kernel, not asked for; and it never outlives the test.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path

from remuda.runtime.steps import CRASHED
from tests.lab.children import die_with_parent
from tests.lab.forks import Forked, fork_server
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.server import tail

_LAST_WORDS = re.compile(rf"^{CRASHED} (\S+)$", re.MULTILINE)


class Program:
    """One life after another of the same command. `lives` counts them; `printed` is what the last has written to its
    standard output."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        folder: Path,
        *,
        executable: str | Path = sys.executable,
        forked: bool = False,
    ) -> None:
        """`forked`: start each life from a process that has imported it (`tests.lab.forks`)."""
        self.name = name
        self.log = folder / f"{name}.log"
        self.lives = 0
        self.process: Process | Forked | None = None
        self._forked = forked
        self._command = (str(executable), *arguments)
        self.printed = ""
        self._news = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._said = 0  # where the last life begins in the log

    async def start(self, environment: Mapping[str, str] | None = None) -> None:
        """A new life. Returns before it is ready."""
        self.printed = ""
        self._said = self.log.stat().st_size if self.log.exists() else 0
        variables = {**os.environ, **(environment or {})}
        with self.log.open("ab") as log:
            if self._forked:
                self.process = await fork_server().start(self._command[1:], variables, log)
            else:
                self.process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=DEVNULL,
                    stdout=PIPE,
                    stderr=log,
                    env=variables,
                    preexec_fn=die_with_parent,
                )
        self.lives += 1
        self._reading = asyncio.create_task(self._read(self.process))

    async def _read(self, process: Process | Forked) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.printed += line.decode(errors="replace")
            self._news.set()
        await process.wait()
        self._news.set()

    async def ready(self) -> bool:
        """Once it has said so; False if this life ended first."""
        return await self.prints(" ready")

    async def prints(self, text: str, seconds: float = LIMIT_SECONDS) -> bool:
        """Once it has printed the text; False if this life ended first."""
        try:
            async with asyncio.timeout(seconds):
                while text not in self.printed and self.alive:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise TimeoutError(f"{self.name} has not printed {text!r} in {seconds:g} s:\n{tail(self.log)}") from None
        return text in self.printed

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        """To this process alone, by its id; one that has ended meanwhile is fine."""
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Without a word, as a crash would."""
        self.signal(signal.SIGKILL)

    async def ended(self) -> int:
        """The code it ended with, once it has."""
        assert self._reading is not None
        assert self.process is not None
        await asyncio.shield(self._reading)
        return await self.process.wait()

    async def stop(self) -> int:
        """SIGTERM, and SIGKILL for one that does not listen."""
        if self.process is None:
            return 0
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                return await self.ended()
        except TimeoutError:
            self.kill()
            return await self.ended()

    @property
    def said(self) -> str:
        """What the last life has logged."""
        return self.log.read_bytes()[self._said :].decode(errors="replace")

    @property
    def crash_point(self) -> str:
        """Where the last life was told to end itself, if it came there."""
        found = _LAST_WORDS.search(self.said)
        return found[1] if found is not None else ""
