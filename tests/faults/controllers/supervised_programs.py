"""A management cluster in three processes that may die: the engine, the simulated provider, and the manager.

    async with supervised_programs(folder) as found:
        found.manager.kill()          # it is started again at once

Whoever dies is started again, as a supervisor would, and every death is noted with its cause. A process that ends by
itself is a finding, unless the server it needs was killed under it.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from remuda.kube import kubeconfig
from remuda.kube.http import HttpClient
from tests.faults.controllers.view import View
from tests.lab.ports import free_port
from tests.lab.programs import Program
from tests.lab.server import tail

_ours = ("-m", "remuda.cli.main")


class Death(NamedTuple):
    program: str
    point: str  # the crash point, if it was one
    seconds: float  # how long this life was


class SupervisedPrograms:
    """`points` are the crash points at which the core (`manager`, or `up`) is to die: the first one it comes to."""

    def __init__(self, folder: Path, *, points: Collection[str] = (), together: bool = False) -> None:
        self.folder = folder
        self.points = set(points)
        self.deaths: list[Death] = []
        self.findings: list[str] = []
        self.cloud = folder / "cloud"
        self.config = folder / "data" / "admin.kubeconfig"
        served = ("--data-dir", str(folder / "data"), "--listen", f"127.0.0.1:{free_port()}")
        simulator = ("-m", "remuda.lab.simulator", "--kubeconfig", str(self.config), "--cloud", str(self.cloud))
        command = "up" if together else "apiserver"
        self.engine = Program(command, (*_ours, command, *served), folder, forked=True)
        self.providers = Program("providers", simulator, folder, forked=True)
        managed = ("manager", "--kubeconfig", str(self.config), "--no-leader-elect")
        self.manager = self.engine if together else Program("manager", (*_ours, *managed), folder, forked=True)
        self.programs = list(dict.fromkeys((self.engine, self.manager, self.providers)))
        self._supervisors: list[asyncio.Task[None]] = []
        self._closing = False

    async def start(self) -> None:
        for program in self.programs:  # in this order: each needs those before it
            self._supervisors.append(asyncio.create_task(self._supervise(program)))
            await self._up(program)
        self.view = View(HttpClient(kubeconfig.load(self.config)))
        await self.view.start()

    async def _up(self, program: Program) -> None:
        """Until one of its lives is ready."""
        while program.process is None or not await program.ready():
            await asyncio.sleep(0.01)

    async def _supervise(self, program: Program) -> None:
        while not self._closing:
            if program is not self.engine:
                await self._up(self.engine)
            served_by = self.engine.lives
            began = time.monotonic()
            await program.start({"REMUDA_CRASH_AT": ",".join(sorted(self.points))} if program is self.manager else None)
            code = await program.ended()
            if not self._closing:
                self._note(program, code, served_by, time.monotonic() - began)

    def _note(self, program: Program, code: int, served_by: int, seconds: float) -> None:
        point = program.crash_point if program is self.manager else ""
        self.points.discard(point)
        self.deaths.append(Death(program.name, point, seconds))
        bereft = program is not self.engine and (not self.engine.alive or self.engine.lives != served_by)
        if code != -signal.SIGKILL and not bereft:
            self.findings.append(f"{program.name} ended by itself with {code}:\n{tail(program.log)}")

    async def close(self) -> None:
        self._closing = True
        if hasattr(self, "view"):
            await self.view.close()
            await self.view.client.close()
        for program in reversed(self.programs):
            await program.stop()
        for task in self._supervisors:
            task.cancel()
        await asyncio.gather(*self._supervisors, return_exceptions=True)

    def show(self, say: Callable[[str], None] = print) -> None:
        """The ends of all logs, for whoever reads why a test has failed."""
        for program in self.programs:
            say(f"--- {program.log} ({program.lives} lives)\n{tail(program.log, 40)}")


@asynccontextmanager
async def supervised_programs(
    folder: Path, *, points: Collection[str] = (), together: bool = False
) -> AsyncIterator[SupervisedPrograms]:
    folder.mkdir(parents=True, exist_ok=True)
    found = SupervisedPrograms(folder, points=points, together=together)
    try:
        await found.start()
        yield found
        assert not found.findings, "\n".join(found.findings)
    except BaseException:
        found.show()
        raise
    finally:
        await found.close()
