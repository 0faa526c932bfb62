"""`remuda up` dies before and after everything it does for a machine and its driver, and what it was doing is finished
all the same: the machine gets its server, the server goes, and nothing is left.

Which points there are is asked of the program: a new step is killed at, or this test fails.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import remuda.app.up  # with all its steps
from remuda.kube import kubeconfig
from remuda.kube.http import HttpClient
from remuda.providers.machine.drivers.simcloud import FileCloud
from remuda.runtime.steps import all_steps
from tests.faults.machines import story
from tests.faults.machines.story import Teller
from tests.lab.programs import Program
from tests.lab.server import free_port, tail

OURS = ("drivermachine.", "nodedriver.", "jobrunner.")
# Nobody here suspends a Job, or lets one expire: tests/controllers/test_jobs.py does.
ELSEWHERE = ("jobrunner.delete-",)
_ROUNDS = 6

assert remuda.app.up


def points() -> set[str]:
    found = [step for step in all_steps() if step.name.startswith(OURS) and not step.name.startswith(ELSEWHERE)]
    return {point for step in found for point in (step.before, step.after)}


class Plane:
    """One life after another, each until it comes to a point."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        where = ("--data-dir", str(self.data), "--listen", f"127.0.0.1:{free_port()}")
        self.program = Program("up", ("-m", "remuda.cli.main", "up", *where), folder)
        self.points = points()
        self.killed: list[str] = []
        self.findings: list[str] = []
        self._closing = False
        self._supervisor: asyncio.Task[None] | None = None

    async def start(self) -> HttpClient:
        self._supervisor = asyncio.create_task(self._supervise())
        config = self.data / "admin.kubeconfig"
        while not config.exists():
            await asyncio.sleep(0.05)
        return HttpClient(kubeconfig.load(config))

    async def _supervise(self) -> None:
        while not self._closing:
            await self.program.start({"REMUDA_CRASH_AT": ",".join(sorted(self.points))} if self.points else None)
            code = await self.program.ended()
            if self._closing:
                return
            point = self.program.crash_point
            self.points.discard(point)
            self.killed.append(point or "by the test")
            if code != -signal.SIGKILL:
                self.findings.append(f"up ended by itself with {code}:\n{tail(self.program.log)}")

    async def close(self) -> None:
        self._closing = True
        await self.program.stop()
        if self._supervisor is not None:
            await self._supervisor


async def test_it_dies_at_every_point_and_nothing_is_lost(tmp_path: Path) -> None:
    plane = Plane(tmp_path)
    client = await plane.start()
    teller = Teller(client)
    try:
        await story.prepare(teller)
        for number in range(_ROUNDS):
            name = f"m{number}"
            await story.live(teller, name)
            assert await story.left(teller, name) == []
            if number % 2 or not plane.points:
                await story.retire_driver(teller)
                if not plane.points:
                    break
                plane.program.kill()  # the next life registers the driver again
        print(f"{len(plane.killed)} kills: {', '.join(plane.killed)}")
        assert plane.points == set(), "the story has not come here"
        assert not plane.findings, "\n".join(plane.findings)
        assert await FileCloud(plane.data / "hosts" / "sim" / "default.jsonl").servers() == []
    except BaseException:
        print(f"left: {sorted(plane.points)}\n{tail(plane.program.log, 60)}")
        raise
    finally:
        await client.close()
        await plane.close()
