"""Commands that make something and may be stopped half-way."""

from __future__ import annotations

import signal
from types import FrameType


def clean_up_when_terminated() -> None:
    """SIGTERM ends the command as Ctrl-C does: through every `finally`, which removes what is half-made."""
    signal.signal(signal.SIGTERM, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
