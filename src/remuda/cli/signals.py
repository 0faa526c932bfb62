"""Signal handling of commands that must clean up when they are terminated."""

from __future__ import annotations

import signal
from types import FrameType


def clean_up_when_terminated() -> None:
    """Make SIGTERM end the command like Ctrl-C: through every `finally`, so that partial results are removed."""
    signal.signal(signal.SIGTERM, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
