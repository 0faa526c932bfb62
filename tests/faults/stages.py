"""A scenario in stages, told while helpers work beside it; a helper that breaks ends the scenario."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

Stage = Callable[[], Awaitable[None]]


async def run(
    stages: Sequence[Stage], helpers: Sequence[Coroutine[Any, Any, None]], on_done: Callable[[Stage], None]
) -> None:
    tasks = [asyncio.create_task(helper) for helper in helpers]
    try:
        for stage in stages:
            await _while(tasks, stage())
            on_done(stage)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _while(tasks: Sequence[asyncio.Task[None]], stage: Awaitable[None]) -> None:
    telling = asyncio.ensure_future(stage)
    done, _ = await asyncio.wait([telling, *tasks], return_when=asyncio.FIRST_COMPLETED)
    if telling not in done:
        telling.cancel()
    for one in done:
        one.result()
