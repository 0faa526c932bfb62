"""Events, which `kubectl describe` shows under an object.

Recording an event never blocks and never fails: a background task writes it. A repeated event increments the count of
the existing Event (`kubectl` shows "x12 over 5m"). Each object has a rate limit, and if the server cannot keep up, the
newest events are dropped: events are best effort.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

from remuda.kube import clock, random_source
from remuda.kube.client import Client, Target
from remuda.kube.errors import NotFound, StatusError
from remuda.kube.objects import Object
from remuda.runtime.queue import Backoff
from remuda.runtime.tasks import Tasks

log = logging.getLogger(__name__)

EVENTS = Target("v1", "events")

_WAITING = 1000  # unwritten events at most
_KNOWN = 4096  # series and rate limits kept
# Rate limit per object, with the numbers of client-go's spam filter: a burst, then one event per refill time.
_BURST = 25.0
_REFILL_SECONDS = 300.0
_ATTEMPTS = 5
_FLUSH_SECONDS = 2.0
_LONGEST_MESSAGE = 1024  # the API server refuses longer ones


class EventObject(msgspec.Struct, frozen=True):
    """Reference to the object of an event, for callers that do not have the object itself."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


class _EventKey(msgspec.Struct, frozen=True):
    """Fields by which two events are the same."""

    about: EventObject
    type: str
    reason: str
    message: str


class _Series:
    __slots__ = ("attempts", "count", "first", "last", "name", "written")

    def __init__(self, name: str, now: str) -> None:
        self.name = name
        self.first = now
        self.last = now
        self.count = 0
        self.written = False
        self.attempts = 0


class Events:
    def __init__(self, client: Client, component: str) -> None:
        self._client = client
        self._component = component
        self._series: _Recent[_EventKey, _Series] = _Recent(_KNOWN)
        self._limits: _Recent[EventObject, _Bucket] = _Recent(_KNOWN)
        self._waiting: OrderedDict[_EventKey, _Series] = OrderedDict()
        self._more = asyncio.Event()
        self._tasks = Tasks()
        self._backoff = Backoff(first=0.5, most=30.0)
        self._closing = False
        self.dropped = 0

    def normal(self, about: Object | EventObject, reason: str, message: str) -> None:
        self._record(about, "Normal", reason, message)

    def warning(self, about: Object | EventObject, reason: str, message: str) -> None:
        self._record(about, "Warning", reason, message)

    def _record(self, about: Object | EventObject, type: str, reason: str, message: str) -> None:
        key = _EventKey(reference(about), type, reason, _cut(message))
        bucket = self._limits.get(key.about) or self._limits.put(key.about, _Bucket(clock.time()))
        if not bucket.take(clock.time()) or (len(self._waiting) >= _WAITING and key not in self._waiting):
            self.dropped += 1
            return
        now = clock.now()
        series = self._series.get(key) or self._series.put(key, _Series(_event_name(key.about.name), now))
        series.count += 1
        series.last = now
        self._waiting[key] = series
        self._more.set()

    def start(self) -> None:
        self._tasks.spawn("events", self._run())

    async def close(self) -> None:
        """Write the remaining events, within a short time, and stop."""
        self._closing = True
        self._more.set()
        await self._tasks.finish(_FLUSH_SECONDS)
        await self._tasks.close()
        if self._waiting:
            log.info("dropped %d events at shutdown", len(self._waiting))

    async def _run(self) -> None:
        while True:
            while self._waiting:
                await self._write_next()
            if self._closing:
                return
            self._more.clear()
            await self._more.wait()

    async def _write_next(self) -> None:
        key, series = self._waiting.popitem(last=False)
        try:
            await self._write(key, series)
            series.attempts = 0
        except StatusError as error:
            if error.code == 429 or error.code >= 500:
                await self._later(key, series, error)
            else:  # the namespace is being deleted, or we lack the right: a retry does not help
                self.dropped += 1
                log.debug("event %s of %s rejected: %s", key.reason, key.about.name, error)
        except OSError as error:
            await self._later(key, series, error)

    async def _later(self, key: _EventKey, series: _Series, error: Exception) -> None:
        series.attempts += 1
        if self._closing or series.attempts >= _ATTEMPTS:
            self.dropped += 1
            log.info("dropped event %s of %s: %s", key.reason, key.about.name, error)
            return
        # The event may have been recorded again meanwhile; then it is queued already.
        self._waiting.setdefault(key, series)
        await asyncio.sleep(self._backoff.seconds(series.attempts))

    async def _write(self, key: _EventKey, series: _Series) -> None:
        # Events are namespaced. As in client-go, those of cluster-scoped objects are in `default`.
        namespace = key.about.namespace or "default"
        if series.written:
            patch = {"count": series.count, "lastTimestamp": series.last}
            try:
                await self._client.patch(EVENTS, namespace, series.name, patch)
                return
            except NotFound:
                series.name = _event_name(key.about.name)  # the server has expired it: start a new series
        await self._client.create(EVENTS, namespace, self._event(key, series, namespace))
        series.written = True

    def _event(self, key: _EventKey, series: _Series, namespace: str) -> dict[str, object]:
        about = key.about
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "type": key.type,
            "reason": key.reason,
            "message": key.message,
            "count": series.count,
            "firstTimestamp": series.first,
            "lastTimestamp": series.last,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
        }


def reference(about: Object | EventObject) -> EventObject:
    if isinstance(about, EventObject):
        return about
    metadata = about.metadata
    return EventObject(about.api_version, about.kind, metadata.namespace, metadata.name, metadata.uid)


def _event_name(name: str) -> str:
    # 236 characters, a dot and 16 digits make 253, the longest name of an object.
    return f"{name[:236]}.{random_source.letters('0123456789abcdef', 16)}"


def _cut(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 3] + "..."


class _Bucket:
    """Token bucket: a burst, then one event per refill time."""

    __slots__ = ("_left", "_since")

    def __init__(self, now: float) -> None:
        self._left = _BURST
        self._since = now

    def take(self, now: float) -> bool:
        self._left = min(_BURST, self._left + max(0.0, now - self._since) / _REFILL_SECONDS)
        self._since = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Recent(Generic[K, V]):
    """Cache of a limited number of recently used entries."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> V:
        self._entries[key] = value
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)
        return value

    def __len__(self) -> int:
        return len(self._entries)
