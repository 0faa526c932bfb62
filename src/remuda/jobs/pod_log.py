"""Log of a Pod as the API returns it: `kubectl logs`, with -f, --tail, --since, --timestamps and --limit-bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec

from remuda.jobs import log_file
from remuda.jobs.launcher import Log
from remuda.kube import clock
from remuda.kube.errors import bad_request

_LOOK_SECONDS = 0.1  # between two reads of a followed log


class Query(msgspec.Struct, frozen=True, kw_only=True):
    follow: bool = False
    tail: int | None = None
    since: float = 0.0  # seconds since the epoch
    timestamps: bool = False
    limit: int | None = None


def parse(query: Mapping[str, str], pod: str, container: str) -> Query:
    """Parse the query. Raise a 400 StatusError."""
    if query.get("container", container) != container:
        raise bad_request(f"container {query['container']} is not valid for pod {pod}")
    if _flag(query, "previous"):
        raise bad_request(f'previous terminated container "{container}" in pod "{pod}" not found')
    since = 0.0
    if (seconds := _number(query, "sinceSeconds", least=1)) is not None:
        since = clock.time() - seconds
    elif "sinceTime" in query:
        try:
            since = clock.parse(query["sinceTime"])
        except ValueError as error:
            raise bad_request(f"sinceTime: {error}") from None
    return Query(
        follow=_flag(query, "follow"),
        tail=_number(query, "tailLines", least=0),
        since=since,
        timestamps=_flag(query, "timestamps"),
        limit=_number(query, "limitBytes", least=1),
    )


def _flag(query: Mapping[str, str], name: str) -> bool:
    """Parse a boolean as the API server does: present, and neither 0 nor false."""
    return name in query and query[name].lower() not in ("0", "false")


def _number(query: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise bad_request(f"{name} must be a number of at least {least}, not {text!r}")
    return int(text)


async def stream(log: Log, query: Query, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the log and, if it is followed, new lines until `ended`."""
    position = 0 if query.tail is None else await asyncio.to_thread(log.tail, query.tail)
    left = query.limit
    shown = _Shown(query)
    while left is None or left > 0:
        over = ended()  # before the read, so that the last lines are not missed
        data, after = log.read(position)
        if after == position:
            if over or not query.follow:
                return
            await asyncio.sleep(_LOOK_SECONDS)
            continue
        position = after
        text = shown.of(data)
        if left is not None:
            text, left = text[:left], left - len(text)
        if text:
            yield text


class _Shown:
    """Lines of the log as the query requests them; a long one comes in parts, and counts as one."""

    def __init__(self, query: Query) -> None:
        self._since = log_file.stamp(query.since) if query.since else b""
        self._timestamps = query.timestamps
        self._within = False  # inside a line whose end has not been read yet

    def of(self, data: bytes) -> bytes:
        shown = bytearray()
        for line in data.split(b"\n")[:-1]:
            time, text, ends = log_file.split(line)
            if time >= self._since:
                if self._timestamps and not self._within:
                    shown += time + b" "
                shown += text
                if ends:
                    shown += b"\n"
            self._within = not ends
        return bytes(shown)


def last_lines(log: Log | None, most_lines: int, most_bytes: int) -> str:
    """Return the last lines of a log, for a termination message. As much as Kubernetes accepts."""
    if log is None:
        return ""
    position, text, shown = log.tail(most_lines), b"", _Shown(Query())
    while True:
        data, after = log.read(position)
        if after == position:
            return text.decode("utf-8", "replace")
        text, position = (text + shown.of(data))[-most_bytes:], after
