"""Dialer of local services, with a pool of threads: a slow name resolution or a host that does not answer delays no
other dial. The pool has at most `most` threads, and none when there is nothing to dial.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from remuda.tunnel.allow import DialTarget

MOST_AT_ONCE = 16
SECONDS = 15.0


def connect(target: DialTarget, seconds: float) -> socket.socket:
    """Return a connected, non-blocking socket. Raises OSError."""
    if target.network == "unix":
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(seconds)
            made.connect(target.host)
        except OSError:
            made.close()
            raise
    else:
        made = socket.create_connection((target.host, target.port), seconds)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setblocking(False)
    return made


def describe_error(error: BaseException) -> str:
    """Return the cause of an error, short: error messages of the protocol are cut after 100 bytes."""
    if isinstance(error, (socket.timeout, TimeoutError)):  # two things before Python 3.10
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return f"cannot resolve the name ({error.strerror})"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return f"{type(error).__name__} {error}".strip()


class Dialer:
    """Dialer. `done` is called in one of its threads, with the ticket and a socket, or None and the reason."""

    def __init__(
        self,
        done: Callable[[Any, socket.socket | None, str], None],
        *,
        most: int = MOST_AT_ONCE,
        seconds: float = SECONDS,
    ) -> None:
        self._done = done
        self._most = most
        self._seconds = seconds
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Any, DialTarget]] = deque()
        self._threads = 0

    def dial(self, ticket: Any, target: DialTarget) -> None:
        with self._lock:
            self._waiting.append((ticket, target))
            if self._threads >= self._most:
                return
            self._threads += 1
        threading.Thread(target=self._work, name="tunnel-dial", daemon=True).start()

    def drop(self) -> None:
        """Drop all dials that have not begun."""
        with self._lock:
            self._waiting.clear()

    def _work(self) -> None:
        while True:
            with self._lock:
                # Check and count under one lock: otherwise `dial` could count on a thread that is about to end, and
                # nobody would dial.
                if not self._waiting:
                    self._threads -= 1
                    return
                ticket, target = self._waiting.popleft()
            try:
                made, reason = connect(target, self._seconds), ""
            except (OSError, ValueError) as error:  # ValueError: a name that IDNA cannot encode
                made, reason = None, describe_error(error)
            self._done(ticket, made, reason)
