"""The agent as a program: the file it runs from, how it is started, and the signals that arrive, none missed.

A signal handler runs only when the main thread gets to it, and one that is about to block does not: it would sleep
through the request to stop. So arrivals go into a pipe, which whoever waits for them reads.
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
    """For what keeps running: without secrets of the installation, and with a bound on what threads set aside."""
    kept = {name: value for name, value in base.items() if name not in _NOT_FOR_DAEMONS}
    kept.setdefault("MALLOC_ARENA_MAX", "2")
    return kept


class Signals:
    """Made in the main thread; waited for in any one."""

    def __init__(self, *numbers: int) -> None:
        self._arrivals, write = os.pipe()
        os.set_blocking(write, False)
        for number in numbers:
            signal.signal(number, _nothing)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def wait(self, seconds: float | None = None) -> int:
        """The next one; 0 when none came in this time."""
        found, _, _ = select.select([self._arrivals], [], [], seconds)
        return os.read(self._arrivals, 1)[0] if found else 0

    def fileno(self) -> int:
        """Readable when one has come."""
        return self._arrivals


def _nothing(*_: object) -> None:
    pass
