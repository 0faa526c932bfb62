"""Memory that is free is given back to the system.

glibc keeps what was freed between blocks in use: after a thousand connections came and went, tens of megabytes. Other C
libraries give it back by themselves or cannot be asked; there this does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache


@cache
def _trimmer() -> Callable[[int], int] | None:
    import ctypes  # not before it is needed: a server without many clients never does

    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


def trim() -> None:
    trimmer = _trimmer()
    if trimmer is not None:
        trimmer(0)
