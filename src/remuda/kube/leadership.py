"""Permission to act: code that may act only while this process leads sets `permit`, which raises when it must not.

`permit` is called when a step begins, and again right before a request is sent: in between, the process may wait for a
lock, a connection or a busy server, or be suspended for minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

permit: ContextVar[Callable[[], None] | None] = ContextVar("permit", default=None)


def ask_permit() -> None:
    ask = permit.get()
    if ask is not None:
        ask()
