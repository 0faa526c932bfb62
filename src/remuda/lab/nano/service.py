"""Node as a systemd service: runs until it is stopped, and notifies systemd when the node is up, if requested."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine
from typing import Any


def ready() -> None:
    """Tell systemd that the node is up, if systemd asked to be told."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.connect("\0" + path[1:] if path.startswith("@") else path)
            channel.sendall(b"READY=1")
        except OSError:
            pass  # the receiver has ended


async def until(stop: asyncio.Event, work: list[Coroutine[Any, Any, None]]) -> None:
    """Run until stopped, or until a task fails, whose error is then raised."""
    tasks = [asyncio.create_task(one) for one in work]
    waiting = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({waiting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (waiting, *tasks):
            task.cancel()
        await asyncio.gather(waiting, *tasks, return_exceptions=True)
