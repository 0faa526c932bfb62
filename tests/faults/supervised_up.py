"""`remuda up` and the programs of its Jobs, which may die at any point, and are started again as a supervisor would.

    async with running(folder, points) as (up, client):     # each kills once, whoever comes there first

A life that ends by itself is a finding. What runs below the folder is found by what it was told, so that a program
nobody remembers is seen too.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from remuda.kube import kubeconfig
from remuda.kube.http import HttpClient
from remuda.runtime import steps
from tests.lab.killable import arguments
from tests.lab.ports import free_port
from tests.lab.programs import Program
from tests.lab.server import tail

_SUPERVISOR = b"remuda.jobs.supervisor"
_ENDS_SECONDS = 0.05


class SupervisedUp:
    def __init__(
        self, folder: Path, points: Collection[str], *, names: Sequence[str], environment: Mapping[str, str] | None
    ) -> None:
        """`names`: what hosts are told to call it; with several, another in each life."""
        self.data = folder / "data"
        self.points = set(points)
        self.deaths: list[str] = []  # of `up`: the crash point, or nothing where somebody else has killed it
        self.findings: list[str] = []
        port = free_port()
        self._programs = [
            Program(
                "up",
                (
                    *("-m", "remuda.cli.main", "up", "--data-dir", str(self.data), "--listen", f"127.0.0.1:{port}"),
                    *("--server-url", f"https://{name}:{port}"),
                ),
                folder,
                forked=True,
            )
            for name in names
        ]
        self._names = names
        self.program = self._programs[0]
        self._deaths_folder = folder / "deaths"
        self._deaths_folder.mkdir(parents=True, exist_ok=True)
        self._environment = dict(environment or {})
        if self.points:
            self._environment |= {
                steps.VARIABLE: ",".join(sorted(self.points)),
                steps.ONCE_VARIABLE: str(self._deaths_folder),
            }
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
            self.program = self._programs[len(self.deaths) % len(self._names)]
            await self.program.start(self._environment)
            code = await self.program.ended()
            if self._closing:
                return
            self.deaths.append(self.program.crash_point)
            if code != -signal.SIGKILL:
                self.findings.append(f"up ended by itself with {code}:\n{tail(self.program.log)}")

    async def close(self) -> None:
        self._closing = True
        await self.program.stop()
        if self._supervisor is not None:
            await self._supervisor
        while left := self.processes():  # one may be starting another just now
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(_ENDS_SECONDS)

    @property
    def name(self) -> str:
        """What hosts are told to call it in this life."""
        return self._names[len(self.deaths) % len(self._names)]

    @property
    def killed(self) -> list[str]:
        """The points at which somebody has died, in that order."""
        return [path.name for path in sorted(self._deaths_folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)]

    @property
    def left(self) -> set[str]:
        """The points nobody has come to."""
        return self.points - set(self.killed)

    def processes(self) -> list[int]:
        """All that run below the folder but `up` itself."""
        mark = str(self.data).encode()
        own = self.program.pid if self.program.process is not None else 0
        return [pid for pid, told in _processes() if mark in told and pid not in (own, os.getpid())]

    def programs(self) -> list[tuple[int, list[str]]]:
        """Those processes, and the arguments of each."""
        return [(pid, arguments(pid)) for pid in self.processes()]

    def jobs(self) -> list[int]:
        """The programs of Jobs, and who guards each."""
        supervisors = [pid for pid, told in _processes() if _SUPERVISOR in told and str(self.data).encode() in told]
        return [pid for supervisor in supervisors for pid in (supervisor, *_children(supervisor))]


@asynccontextmanager
async def running(
    folder: Path,
    points: Collection[str] = (),
    *,
    names: Sequence[str] = ("127.0.0.1",),
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[SupervisedUp, HttpClient]]:
    up = SupervisedUp(folder, points, names=names, environment=environment)
    client = await up.start()
    try:
        yield up, client
        assert not up.findings, "\n".join(up.findings)
    except BaseException:
        print(f"left: {sorted(up.left)}\n{tail(up.program.log, 60)}")
        raise
    finally:
        await client.close()
        await up.close()


def _processes() -> Iterator[tuple[int, bytes]]:
    """Every process, with its arguments and its environment."""
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                yield int(place.name), (place / "cmdline").read_bytes() + b"\0" + (place / "environ").read_bytes()
            except OSError:
                continue  # it has just ended, or is not ours


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
