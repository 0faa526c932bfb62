"""Events for people: what `kubectl describe` shows under an object.

Telling one never waits and never fails: it is noted, and a task writes it. What is said again is counted in the Event
there is already (`kubectl` shows "x12 over 5m"), however often it is said while the first is on its way. An object that
talks too much is cut short, and when the server cannot keep up the newest are dropped: events are a courtesy, never a
record.
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

_WAITING = 1000  # events on their way at most
_KNOWN = 4096  # series and talkers remembered
_BURST = 25.0  # events of one object at once…
_REFILL_SECONDS = 300.0  # …and then one per so long
_ATTEMPTS = 5
_FLUSH_SECONDS = 2.0
_LONGEST_MESSAGE = 1024


class Reference(msgspec.Struct, frozen=True):
    """An object an event is about, where the object itself is not at hand."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


class _Said(msgspec.Struct, frozen=True):
    """Fields by which two events are the same."""

    about: Reference
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
        self._series: _Recent[_Said, _Series] = _Recent(_KNOWN)
        self._talkers: _Recent[Reference, _Bucket] = _Recent(_KNOWN)
        self._waiting: OrderedDict[_Said, _Series] = OrderedDict()
        self._more = asyncio.Event()
        self._tasks = Tasks()
        self._backoff = Backoff(first=0.5, most=30.0)
        self._closing = False
        self.dropped = 0

    def normal(self, about: Object | Reference, reason: str, message: str) -> None:
        self._say(about, "Normal", reason, message)

    def warning(self, about: Object | Reference, reason: str, message: str) -> None:
        self._say(about, "Warning", reason, message)

    def _say(self, about: Object | Reference, type: str, reason: str, message: str) -> None:
        said = _Said(reference(about), type, reason, _cut(message))
        bucket = self._talkers.get(said.about) or self._talkers.put(said.about, _Bucket(clock.time()))
        if not bucket.take(clock.time()) or (len(self._waiting) >= _WAITING and said not in self._waiting):
            self.dropped += 1
            return
        now = clock.now()
        series = self._series.get(said) or self._series.put(said, _Series(_event_name(said.about.name), now))
        series.count += 1
        series.last = now
        self._waiting[said] = series
        self._more.set()

    def start(self) -> None:
        self._tasks.spawn("events", self._run())

    async def close(self) -> None:
        """Writes what is waiting if that is quickly done, and ends."""
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
        said, series = self._waiting.popitem(last=False)
        try:
            await self._write(said, series)
            series.attempts = 0
        except StatusError as error:
            if error.code == 429 or error.code >= 500:
                await self._later(said, series, error)
            else:  # the namespace is going, or we may not: nobody is helped by trying again
                self.dropped += 1
                log.debug("event %s of %s rejected: %s", said.reason, said.about.name, error)
        except OSError as error:
            await self._later(said, series, error)

    async def _later(self, said: _Said, series: _Series, error: Exception) -> None:
        series.attempts += 1
        if self._closing or series.attempts >= _ATTEMPTS:
            self.dropped += 1
            log.info("dropped event %s of %s: %s", said.reason, said.about.name, error)
            return
        self._waiting.setdefault(said, series)
        await asyncio.sleep(self._backoff.seconds(series.attempts))

    async def _write(self, said: _Said, series: _Series) -> None:
        namespace = said.about.namespace or "default"
        if series.written:
            patch = {"count": series.count, "lastTimestamp": series.last}
            try:
                await self._client.patch(EVENTS, namespace, series.name, patch)
                return
            except NotFound:
                series.name = _event_name(said.about.name)  # it was too old to be kept: the series begins anew
        await self._client.create(EVENTS, namespace, self._event(said, series, namespace))
        series.written = True

    def _event(self, said: _Said, series: _Series, namespace: str) -> dict[str, object]:
        about = said.about
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
            "type": said.type,
            "reason": said.reason,
            "message": said.message,
            "count": series.count,
            "firstTimestamp": series.first,
            "lastTimestamp": series.last,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
        }


def reference(about: Object | Reference) -> Reference:
    if isinstance(about, Reference):
        return about
    metadata = about.metadata
    return Reference(about.api_version, about.kind, metadata.namespace, metadata.name, metadata.uid)


def _event_name(name: str) -> str:
    return f"{name[:236]}.{random_source.letters('0123456789abcdef', 16)}"


def _cut(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 3] + "..."


class _Bucket:
    """So much at once, and then a little at a time."""

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
    """The entries used most recently, so many of them."""

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
