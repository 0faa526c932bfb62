"""A story in chapters, told while helpers work beside it; a helper that breaks ends the story."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

Chapter = Callable[[], Awaitable[None]]


async def run(
    chapters: Sequence[Chapter], helpers: Sequence[Coroutine[Any, Any, None]], on_done: Callable[[Chapter], None]
) -> None:
    tasks = [asyncio.create_task(helper) for helper in helpers]
    try:
        for chapter in chapters:
            await _while(tasks, chapter())
            on_done(chapter)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _while(tasks: Sequence[asyncio.Task[None]], chapter: Awaitable[None]) -> None:
    telling = asyncio.ensure_future(chapter)
    done, _ = await asyncio.wait([telling, *tasks], return_when=asyncio.FIRST_COMPLETED)
    if telling not in done:
        telling.cancel()
    for one in done:
        one.result()
