"""Interface between the runner and the launchers that run a Job's program."""

from __future__ import annotations

from typing import Protocol

import msgspec

from remuda.jobs.pod_inputs import PodInputs


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt."""

    uid: str  # of its Pod
    name: str  # for people: namespace/name of the Job
    materials: PodInputs
    kubeconfig: bytes = b""
    memory: int = 0  # bytes; 0: no limit
    termination_path: str = ""
    privileged: bool = False  # runs as the runner's user; otherwise, if possible, as a separate user


class Log(Protocol):
    """Lines in the format of `log_file`, by positions that only grow."""

    def read(self, position: int) -> tuple[bytes, int]: ...

    def tail(self, count: int) -> int: ...


class Started(Protocol):
    async def wait(self) -> int:
        """Return the exit code when the program and its process group have ended; 128 plus the number for a signal."""

    def terminate(self) -> None:
        """Ask the program to end."""

    def kill(self) -> None:
        """Kill the program."""

    def termination_message(self) -> str:
        """Return what the program wrote to its termination log."""


class Launcher(Protocol):
    needs_kubeconfig: bool

    async def start(self, work: LaunchSpec) -> Started: ...

    def log(self, uid: str) -> Log | None:
        """Return the log of a Pod that was run here, even long ago; None if the Pod is unknown."""

    async def tidy(self, uid: str) -> None:
        """Delete everything but the log: the program has ended."""

    async def forget(self, uid: str) -> None:
        """Delete everything: the Pod was deleted."""

    async def sweep(self, known: set[str]) -> None:
        """Delete everything at a start, except for these Pods."""
