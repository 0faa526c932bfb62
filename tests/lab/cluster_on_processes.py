"""A declared cluster on hosts that are processes, which can be killed and started again."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from remuda.providers.shared.drivers.proc import HostProcesses, members
from tests.lab.clusters import Fleet
from tests.lab.killable import KillableCluster, arguments
from tests.lab.up import Json, eventually

_ENDS_SECONDS = 0.05


class _Start(NamedTuple):
    """Command of a host's first program, which no service manager restarts after the host's death."""

    command: list[str]
    environment: dict[str, str]


class ClusterOnProcesses(KillableCluster):
    def __init__(self, fleet: Fleet, name: str, pools: list[Json], **config: Any) -> None:
        super().__init__(fleet, name, pools, **config)
        self._starts: dict[str, _Start] = {}

    def root(self, machine: str) -> Path:
        name = str(self.machines()[machine]["spec"]["infrastructureRef"]["name"])
        return self.fleet.hosts / "process" / name / "root"

    def file(self, machine: str, path: str) -> str:
        found = self.root(machine) / path.lstrip("/")
        return found.read_text() if found.exists() else ""

    def processes(self, machine: str) -> list[int]:
        return members(self.root(machine))

    def kill(self, machine: str) -> None:
        (supervisor,) = [pid for pid in self.processes(machine) if "supervise" in arguments(pid)]
        self._starts[machine] = _Start(arguments(supervisor), _environment(supervisor))
        living = HostProcesses(self.root(machine))
        while living.end(hard=True):  # one may be starting another just now
            time.sleep(_ENDS_SECONDS)

    def boot(self, machine: str) -> None:
        start = self._starts.pop(machine)
        with (self.root(machine).parent / "boot.log").open("ab") as log:
            subprocess.run(
                ["setsid", "--fork", *start.command],
                cwd="/",
                env=start.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )
        eventually(lambda: self.processes(machine), lambda: f"no process of {machine} runs\n{self.fleet.diagnosis}")


def _environment(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    pairs = [os.fsdecode(entry).partition("=") for entry in entries if entry]
    return {key: value for key, _, value in pairs}
