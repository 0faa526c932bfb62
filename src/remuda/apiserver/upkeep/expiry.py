"""Expiry of events one hour after their last change: they are a log for people, not state."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from remuda.apiserver.registry.calls import DeleteOptions
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.storage.types import StorageFailed, StoreEntry, StoreEvent
from remuda.kube import clock
from remuda.kube.errors import Conflict, NotFound

TABLE = "events"
_SWEEP_SECONDS = 60.0
log = logging.getLogger(__name__)


class _Write(msgspec.Struct):
    time: str | None = None


class _Dated(msgspec.Struct):
    created: str | None = msgspec.field(default=None, name="creationTimestamp")
    writes: list[_Write] | None = msgspec.field(default=None, name="managedFields")


class _DatedObject(msgspec.Struct):
    metadata: _Dated


_decode_dated = msgspec.json.Decoder(_DatedObject).decode


def last_written(entry: StoreEntry) -> str:
    """Return the time of the last write, from the managed fields: a repeated event lives longer."""
    dated = _decode_dated(entry.value).metadata
    return max([dated.created or "", *(write.time or "" for write in dated.writes or ())])


class ExpiryDuty:
    """Deletes events that were not written for `ttl`, at most a minute late."""

    def __init__(self, registry: Registry, ttl: timedelta = timedelta(hours=1)) -> None:
        self._registry = registry
        self._ttl = ttl
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._sweep_forever(), name="expiry")

    def observe(self, events: Sequence[StoreEvent]) -> None:
        """Do nothing: age matters here, not changes."""

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                await self.sweep(datetime.fromtimestamp(clock.time(), UTC))
            except StorageFailed as error:
                log.warning("cannot delete expired events: %s; retrying", error)

    async def sweep(self, now: datetime) -> None:
        oldest = clock.rfc3339((now - self._ttl).timestamp())
        expired = [e for e in self._registry.store.intact(TABLE) if last_written(e) < oldest]
        for start in range(0, len(expired), 64):
            await asyncio.gather(*(self._delete(entry) for entry in expired[start : start + 64]))

    async def _delete(self, entry: StoreEntry) -> None:
        resource = self._registry.resources.of_table(TABLE)
        if resource is None:
            return
        call = self._registry.system_call("delete", resource, entry.namespace, entry.name)
        # The Event may be repeated between the sweep and the delete; then it stays.
        unchanged = DeleteOptions(precondition_resource_version=str(entry.revision))
        with contextlib.suppress(NotFound, Conflict):  # deleted, or written meanwhile
            await self._registry.delete(call, unchanged)
