"""Reflector: lists one resource, follows its watch, and lists it again when the history is lost.

It updates a picture of the resource in order and without gaps: `replace` with all objects (the receiver works out which
were deleted), then each change. A watch that ends is resumed where it stopped; one whose revision is too old (410) is
replaced by a new list; other errors are retried with exponential back-off and jitter. So is a watch that ends
immediately, so that a server that shuts down, or a proxy that does not support watches, is not asked in a tight loop.

A new list also follows a watch event that cannot be decoded, because its content is lost. If no event can be decoded,
the resource is listed every few seconds, and `error` reports it until an event is decoded again.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import Protocol

import msgspec

from remuda.kube.client import Change, Client, Target, list_all
from remuda.kube.errors import Gone, UnreadableWatch
from remuda.runtime.queue import Backoff

log = logging.getLogger(__name__)

_SHORT_SECONDS = 1.0  # a watch that returns no event and ends within this time has failed


class WatchedCopy(Protocol):
    def replace(self, items: list[bytes], revision: int) -> None: ...

    def change(self, change: Change) -> int:
        """Return the revision of the change, from which the watch is resumed."""


class Reflector:
    def __init__(
        self,
        client: Client,
        target: Target,
        picture: WatchedCopy,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        backoff: Backoff | None = None,
    ) -> None:
        self._client = client
        self._target = target
        self._picture = picture
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._metadata_only = metadata_only
        self._backoff = backoff or Backoff(first=0.2, most=10.0)
        self._revision = ""  # revision from which the watch resumes; empty: a new list is needed
        self._failures = 0
        self._unreadable = 0  # unreadable watches since the last one that worked
        self.error: Exception | None = None  # error of the last attempt; None after a success
        self.attempted = asyncio.Event()  # the first list has succeeded or failed

    async def run(self) -> None:
        while True:
            try:
                if not self._revision:
                    await self._list()
                await self._follow()
            except Exception as error:
                if _is_cancelled():
                    # The error was raised while the cancelled task closed its watch. Handling it here would undo the
                    # cancellation.
                    raise
                await self._failed(error)

    async def _failed(self, error: Exception) -> None:
        lost = isinstance(error, Gone)
        unreadable = isinstance(error, UnreadableWatch)
        if lost or unreadable:
            self._revision = ""
        self._failures += 1
        if lost and self._failures == 1:
            return  # the server compacts its history regularly: list again at once, without an error
        if unreadable:
            self._unreadable += 1
        level = logging.WARNING if unreadable and not self.unreadable else logging.INFO
        self.error = error
        self.attempted.set()
        log.log(level, "cannot watch %s %s: %s", *self._target, str(error) or type(error).__name__)
        # Each failed attempt costs a list: events that can be read in between do not make it start over at once.
        await asyncio.sleep(self._backoff.seconds(max(self._failures, self._unreadable)))

    @property
    def unreadable(self) -> str:
        """Return why the watch cannot be read, while periodic lists replace it; empty if it can."""
        return str(self.error) if isinstance(self.error, UnreadableWatch) else ""

    def _worked(self) -> None:
        self._failures = 0
        self.error = None

    async def _list(self) -> None:
        listing = await list_all(
            self._client,
            self._target,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            metadata_only=self._metadata_only,
        )
        self._picture.replace(list(listing.items), int(listing.resource_version))
        # Only after the copy has taken the list: if `replace` fails, the resource is listed again and not watched from
        # here.
        self._revision = listing.resource_version
        if not self.unreadable:  # a list does not repair the watch
            self.error = None
        self.attempted.set()

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        watch = self._client.watch(
            self._target,
            self._namespace,
            resource_version=self._revision,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            metadata_only=self._metadata_only,
        )
        brought = False
        async with aclosing(watch):
            async for change in watch:
                self._revision = str(self._take_in(change))
                if not brought:
                    brought = True
                    self._worked()
        # A server that shuts down, or a proxy without watches, ends each watch at once: back off instead of asking in a
        # loop.
        if not brought and loop.time() - began < _SHORT_SECONDS:
            raise ConnectionError("the watch ended immediately")
        self._worked()
        self._unreadable = 0

    def _take_in(self, change: Change) -> int:
        try:
            return self._picture.change(change)
        except (
            msgspec.MsgspecError,
            ValueError,
            RecursionError,
        ) as error:  # no metadata, or a revision that is no number
            raise UnreadableWatch(f"an event has no valid object: {error}") from error


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
