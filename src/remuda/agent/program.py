"""The agent as a program: the file it runs from, how it is started, and the signals it receives.

Python runs a signal handler only when the main thread executes bytecode. A main thread that is about to block would
miss the request to stop. So each signal is written to a pipe, and a waiting thread reads the pipe.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Mapping

# Import nothing from the environment or from packages of this host.
_FLAGS = ("-I", "-S")

_NOT_FOR_DAEMONS = ("CATTLE_TOKEN",)


def own_path() -> str:
    """Return the path of the file this program runs from; empty when it is not a single file."""
    archive = getattr(globals().get("__loader__"), "archive", "")
    return os.path.abspath(archive) if archive else ""


def command(path: str, *arguments: str) -> list[str]:
    return [sys.executable, *_FLAGS, path, *arguments]


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for long-running processes: without secrets of the installation, and with a limit on the
    memory that malloc reserves per thread."""
    kept = {name: value for name, value in base.items() if name not in _NOT_FOR_DAEMONS}
    kept.setdefault("MALLOC_ARENA_MAX", "2")
    return kept


class Signals:
    """Signals of this process. Create it in the main thread; any thread may wait."""

    def __init__(self, *numbers: int) -> None:
        self._arrivals, write = os.pipe()
        os.set_blocking(write, False)
        for number in numbers:
            signal.signal(number, _nothing)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def wait(self, seconds: float | None = None) -> int:
        """Return the next signal; 0 if none arrives in this time."""
        found, _, _ = select.select([self._arrivals], [], [], seconds)
        return os.read(self._arrivals, 1)[0] if found else 0

    def fileno(self) -> int:
        """Return a descriptor that is readable when a signal has arrived."""
        return self._arrivals


def _nothing(*_: object) -> None:
    pass
