"""Log of the agent: lines on standard error, which systemd or the supervisor stores.

Never logged: tokens, contents of files, environments and arguments of commands.
"""

from __future__ import annotations

import os
import sys
import threading
import time

_LEVELS = ("debug", "info", "warning", "error")
_lock = threading.Lock()
_least = 1
_once: set[str] = set()


def level(name: str) -> None:
    global _least
    known = {"trace": "debug", "warn": "warning", "fatal": "error", "panic": "error"}.get(name.lower(), name.lower())
    _least = _LEVELS.index(known) if known in _LEVELS else 1


def debug(text: str) -> None:
    _write(0, text)


def info(text: str) -> None:
    _write(1, text)


def warning(text: str) -> None:
    _write(2, text)


def error(text: str) -> None:
    _write(3, text)


def once(text: str) -> None:
    """Log a text only the first time."""
    if text not in _once:
        _once.add(text)
        info(text)


def _write(rank: int, text: str) -> None:
    if rank < _least:
        return
    under_systemd = "JOURNAL_STREAM" in os.environ  # the journal has its own timestamps
    stamp = "" if under_systemd else time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime())
    line = f"{stamp}{_LEVELS[rank].upper()} {text}\n".encode("utf-8", "replace")
    with _lock:
        try:
            os.write(sys.stderr.fileno(), line)
        except (OSError, ValueError):
            pass
