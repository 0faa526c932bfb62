"""Doing several things at once, until told to stop; and staying small meanwhile."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

from remuda.apiserver.http.trimming import trim


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


def give_back() -> None:
    """The memory that starting took, and nothing needs any more. Many of these share a machine."""
    gc.collect()
    gc.freeze()  # what is left stays for good: it need not be looked at again
    trim()
