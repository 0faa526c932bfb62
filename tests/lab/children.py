"""Child processes that end with the test that started them, however it ends.

Linux only (a parent-death signal); elsewhere a killed test run may leave its servers behind. The signal follows the
thread that started the child, so start servers from the main thread.
"""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """For `preexec_fn`."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
