"""Signals as they arrive, none missed.

A handler runs only when the main thread gets to it, and one that is about to block does not: it would sleep through the
request to stop. So arrivals go into a pipe, which whoever waits for them reads.
"""

from __future__ import annotations

import os
import select
import signal


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
