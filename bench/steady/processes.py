"""Processes that are measured: what each has taken of memory and of the processor, as the kernel counts it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_END_SECONDS = 20.0


class Memory(NamedTuple):
    """In MB."""

    resident: float
    proportional: float  # pages that are shared with others count in part
    own: float  # pages that nobody else has
    most: float  # resident, at any moment so far

    def __str__(self) -> str:
        shares = f"{self.proportional:.0f} in proportion, {self.own:.0f} its own"
        return f"{self.resident:.0f} MB resident ({shares}; {self.most:.0f} at most so far)"


class Process:
    """A program whose last line on stdout is always at hand. Its stderr goes into a file."""

    def __init__(self, arguments: Sequence[str], log: Path, *, nice: int = 0) -> None:
        polite = ["nice", "-n", str(nice)] if nice else []
        self._log = log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [*polite, sys.executable, *arguments], stdout=subprocess.PIPE, stderr=file, text=True
            )
        self.said = ""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said = line.strip()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    @property
    def complaint(self) -> str:
        return "\n".join(self._log.read_text().splitlines()[-10:])

    def cpu_seconds(self) -> float:
        """Of all its threads, by itself and by the kernel for it."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory(self) -> Memory:
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()[1:]
        lines += [line for line in Path(f"/proc/{self.pid}/status").read_text().splitlines() if "VmHWM" in line]
        found = {line.split()[0]: int(line.split()[1]) / 1024 for line in lines}
        own = found["Private_Clean:"] + found["Private_Dirty:"]
        return Memory(found["Rss:"], found["Pss:"], own, found["VmHWM:"])

    def end(self) -> None:
        if self.lives:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
