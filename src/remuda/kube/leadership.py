"""May whoever is acting here still act? One that acts only while it leads sets `permit`, which raises when it must not.

It is asked when a step begins and again at the last moment before a write leaves this process: in between lie waits
for a turn, a connection or a busy server, and a process can be stopped for minutes anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

permit: ContextVar[Callable[[], None] | None] = ContextVar("permit", default=None)


def ask_permit() -> None:
    ask = permit.get()
    if ask is not None:
        ask()
