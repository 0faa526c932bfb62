"""Exit codes, the same for every command, and the exit of a command that is terminated.

docs/cli.md documents the codes for users. A command that answers a question (`why`, `leaks`) exits with `NO` for "no",
so that scripts can branch on it.
"""

from __future__ import annotations

import signal
from types import FrameType

NO = 1  # refused, failed, not found, not ready
USAGE = 2  # invalid command line (click's own code)
DESTROYS = 3  # machines would be deleted or replaced, and nobody confirmed it (`plan --no-replace`, no terminal)
UNREACHABLE = 4  # no management plane answers
IN_VAIN = 5  # --timeout expired before the expected state was reached
INTERRUPTED = 130  # Ctrl-C; the server continues the operation


def clean_up_when_terminated() -> None:
    """Make SIGTERM end the command like Ctrl-C: through every `finally`, so that partial results are removed."""
    signal.signal(signal.SIGTERM, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
