"""Watch streams: a batch of events is one write (a large one a few), and an event for many watchers is encoded once.

A line is `{"type":…,"object":…}` and a newline. The framed chunk of a single event is cached with the event
(`WatchLine.shared`), so sending it to further watchers costs one dictionary lookup and one write.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from remuda.apiserver.http.answers import audit_header, is_status, warning_headers
from remuda.apiserver.http.lists import partial_object
from remuda.apiserver.http.negotiate import Form
from remuda.apiserver.http.table import Tabler, included_object
from remuda.apiserver.registry.calls import Call, Watch, WatchLine
from remuda.kube.web import Request, Sink, Stream, frame_chunk, header_block

# As upstream (min-request-timeout): a watch without a timeout of its own ends after 30 to 60 minutes.
_SHORTEST_SECONDS = 1800.0
_LINES_PER_WRITE = 128  # a watch may start with ten thousand objects: its reader sets the pace
_BYTES_PER_WRITE = 256 * 1024  # limit for large objects
_HEADERS = header_block([("Cache-Control", "no-cache, private"), ("Content-Type", "application/json")])

_HEADS = {
    type_: b'{"type":"%b","object":' % type_.encode() for type_ in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
}

Encode = Callable[[WatchLine], bytes]


def watch_stream(
    request: Request,
    call: Call,
    watch: Watch,
    form: Form,
    tabler: Tabler,
    timeout_seconds: float,
    ended: Callable[[], None],
) -> Stream:
    lines = _lines_of(request, form, tabler)
    headers = audit_header(request) + _HEADERS
    if call.warnings:
        headers += warning_headers(call.warnings)
    seconds = timeout_seconds or _SHORTEST_SECONDS * (1 + random.random())  # noqa: S311

    async def produce(sink: Sink) -> None:
        try:
            await _pour(watch, lines, sink)
        finally:
            watch.close()
            ended()

    return Stream(produce, headers, ends_after=seconds)


class Lines:
    """Encoder of the events of one watch. `key` names the form, so that watches of the same form share the bytes."""

    __slots__ = ("encode", "key")

    def __init__(self, key: object, encode: Encode) -> None:
        self.key = key
        self.encode = encode

    def chunk(self, line: WatchLine) -> bytes:
        """Encode one event as a whole chunk."""
        shared = line.shared
        if shared is None:
            return frame_chunk(self.encode(line))
        key = (self.key, line.type)
        chunk = shared.get(key)
        if chunk is None:
            chunk = shared[key] = frame_chunk(self.encode(line))
        return chunk


async def _pour(watch: Watch, lines: Lines, sink: Sink) -> None:
    while batch := await watch.next_batch():
        if len(batch) == 1:
            sink.write_chunk(lines.chunk(batch[0]))
            await sink.drain()
            continue
        for chunks in _portions(batch, lines):
            sink.write_chunks(chunks)
            await sink.drain()


def _portions(batch: Sequence[WatchLine], lines: Lines) -> Iterator[list[bytes]]:
    """Yield encoded portions lazily, so that events that a slow reader has not reached yet cost nothing."""
    chunks: list[bytes] = []
    size = 0
    for line in batch:
        chunks.append(lines.chunk(line))
        size += len(chunks[-1])
        if len(chunks) == _LINES_PER_WRITE or size >= _BYTES_PER_WRITE:
            yield chunks
            chunks, size = [], 0
    if chunks:
        yield chunks


def _plain(line: WatchLine) -> bytes:
    return b"%b%b}\n" % (_HEADS[line.type], line.value)


_PLAIN = Lines("object", _plain)


def _lines_of(request: Request, form: Form, tabler: Tabler) -> Lines:
    if form.view == "Table":
        return _TableLines(tabler, included_object(request), form.view_version)
    if form.view:
        version = form.view_version
        return Lines(("partial", version), lambda line: _enclosed(line, partial_object(line.value, version)))
    return _PLAIN


def _enclosed(line: WatchLine, view: bytes) -> bytes:
    if line.type == "ERROR" and is_status(line.value):
        return _plain(line)
    return b"%b%b}\n" % (_HEADS[line.type], view)


class _TableLines(Lines):
    """Encoder of table events. Only the first table of a watch has the column definitions."""

    __slots__ = ("_include", "_started", "_tabler", "_version")

    def __init__(self, tabler: Tabler, include: str, version: str) -> None:
        super().__init__(("table", id(tabler), include, version), self._later)
        self._tabler = tabler
        self._include = include
        self._version = version
        self._started = False

    def chunk(self, line: WatchLine) -> bytes:
        if self._started or line.type == "ERROR":
            return super().chunk(line)
        self._started = True
        table = self._tabler.of_object(line.value, self._include, self._version)
        return frame_chunk(_enclosed(line, table))

    def _later(self, line: WatchLine) -> bytes:
        if line.type == "ERROR":
            return _plain(line)
        table = self._tabler.of_object(line.value, self._include, self._version, headers=False)
        return _enclosed(line, table)
