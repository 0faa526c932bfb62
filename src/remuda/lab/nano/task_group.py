"""Doing several things at once, until told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def until(stop: asyncio.Event, work: list[Coroutine[Any, Any, None]]) -> None:
    """Until told to stop, or until something of it fails, which is then raised."""
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
