"""Memory that is free is given back to the system, and what is not used is never taken from it.

glibc keeps what was freed between blocks in use: after a thousand connections came and went, tens of megabytes. Other C
libraries give it back by themselves or cannot be asked; there this does nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

_M_MMAP_THRESHOLD = -3
_LARGE = 192 * 1024


@cache
def _glibc(function: str) -> Any:
    import ctypes  # not before it is needed: a server without many clients never does

    return getattr(ctypes.CDLL(None), function, None)


def trim() -> None:
    if (trimmer := _glibc("malloc_trim")) is not None:
        trimmer(0)


def set_large_blocks_apart() -> None:
    """From now on they come from the system one by one, untouched. Each TLS connection of uvloop has a buffer of 256 KB
    of which it uses a few; glibc, whose own idea of what is large grows, would cut it out of memory that others have
    left behind, and all of that would count."""
    if (set_option := _glibc("mallopt")) is not None:
        set_option(_M_MMAP_THRESHOLD, _LARGE)
