"""A declared cluster of nano whose hosts and programs a test kills, whatever driver made the hosts."""

from __future__ import annotations

import json
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.lab.clusters import DeclaredCluster

AGENT, TUNNEL, DISTRIBUTION, UNIT_KEEPER = "an agent", "a tunnel", "the distribution", "a unit's keeper"
_MEMBERS_FILE = "/var/lib/rancher/nano/server/db/cluster.json"


class KillableCluster(DeclaredCluster, ABC):
    @abstractmethod
    def file(self, machine: str, path: str) -> str:
        """Return a file of the host; empty when it is not there."""

    @abstractmethod
    def processes(self, machine: str) -> Iterable[int]:
        """Return the living processes of the host."""

    @abstractmethod
    def kill(self, machine: str) -> None:
        """Kill every process of the host at once, as a power cut does."""

    @abstractmethod
    def boot(self, machine: str) -> None:
        """Start a killed host again, with the files it had."""

    def programs(self, machine: str) -> dict[str, int]:
        """Return the process of each program that Remuda has on the host. A keeper is listed with its unit, because a
        server has two of them."""
        found = {}
        for pid in self.processes(machine):
            words = arguments(pid)
            if name := program_name(words):
                found[f"{name} of {words[-1]}" if name == UNIT_KEEPER else name] = pid
        return found

    def kill_program(self, machine: str, program: str) -> int:
        """Return the process that was killed."""
        pid = self.programs(machine)[program]
        os.kill(pid, signal.SIGKILL)
        return pid

    def leader(self) -> str:
        """Return the Machine of the server that holds the data; nano, unlike etcd, does not survive its loss."""
        for name, machine in self.machines().items():
            known = self.file(name, _MEMBERS_FILE)
            node = str(machine["status"]["nodeRef"]["name"])
            if known and json.loads(known)["keeper"].startswith(f"{node}-"):
                return name
        raise AssertionError("no server holds the data")


def arguments(pid: int) -> list[str]:
    """Return the words of a process's command; none when it has ended."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        return words.removesuffix("\0").split("\0")
    return []


def program_name(words: Sequence[str]) -> str:
    """Return which program of a host has these arguments; empty for one that is not Remuda's or that only starts
    others."""
    if any(word.endswith("/usr/local/bin/remuda-agent") for word in words):
        return AGENT if "run" in words else UNIT_KEEPER if "keep" in words else ""
    if any(word.endswith("/tunnel/remuda-tunnel.pyz") for word in words):
        return TUNNEL
    of_nano = any("/usr/local/lib/nano/" in word and word.endswith("/lib") for word in words)
    return DISTRIBUTION if of_nano and {"server", "agent"} & set(words) else ""
