"""Decoding of lists and watches into the bytes of their objects: pure, and without decoding objects.

Servers omit apiVersion and kind from the items of built-in lists; they are added here, so that an object looks the same
from every source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import get_args

import msgspec

from remuda.kube.client import Change, ChangeType, Listing
from remuda.kube.errors import StatusError, UnreadableWatch, status_error

MAX_EVENT = 64 * 1024 * 1024  # far above what any server stores as one object

_MOST_SHOWN = 50  # shown bytes of invalid data
_TYPED = (b'{"apiVersion":', b'{"kind":')  # start of a complete item, which needs no closer look
# Errors of msgspec for invalid input; ValueError is for text that is not UTF-8.
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_TYPES = frozenset(get_args(ChangeType))


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    token: str | None = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _Typed(msgspec.Struct):
    kind: str = ""


_decode_list = msgspec.json.Decoder(_List).decode
_decode_typed = msgspec.json.Decoder(_Typed).decode


def read_list(body: bytes) -> Listing:
    """Read one page of a list. Raises StatusError, also if an item is no object."""
    try:
        found = _decode_list(body)
        items = _whole(found.items or (), found.api_version, found.kind.removesuffix("List"))
    except _UNREADABLE as error:
        raise StatusError(500, "InternalError", f"the server's list cannot be read: {error}") from None
    return Listing(items, found.metadata.resource_version, found.metadata.token or "")


def _whole(items: Sequence[msgspec.Raw], api_version: str, kind: str) -> list[bytes]:
    prefix = b'{"apiVersion":%b,"kind":%b,' % (msgspec.json.encode(api_version), msgspec.json.encode(kind))
    whole = []
    for item in items:
        # A separate copy in either case: the Raw would keep the whole answer in memory.
        value = bytes(item)
        if not value.startswith(_TYPED) and not _decode_typed(value).kind:
            body = value[1:].lstrip()
            value = prefix + body if body != b"}" else prefix[:-1] + body
        whole.append(value)
    return whole


class WatchEvent(msgspec.Struct):
    """Event of a watch, with the object as the server sent it."""

    type: str
    object: msgspec.Raw


_decode_event = msgspec.json.Decoder(WatchEvent).decode


def read_change(event: WatchEvent) -> Change:
    """Return the change of an event. Raise the server's error for an ERROR event, and UnreadableWatch for an unknown
    type.
    """
    value = bytes(event.object)
    if event.type == "ERROR":
        raise status_error(0, value)
    if event.type not in _TYPES:
        raise UnreadableWatch(f"an event has the type {event.type[:50]!r}")
    return Change(event.type, value)  # type: ignore[arg-type]  # it is one of them


_SPACE = re.compile(rb"[ \t\r\n]*")
# Tokens of JSON that matter for the end of an object: 1 opens, 2 closes, 3 is a string that the chunk cuts off (4:
# after a backslash). Complete strings have no group, so that their brackets do not count.
_TOKEN = re.compile(rb'([{\[])|([}\]])|"[^"\\]*(?:\\.[^"\\]*)*(?:"|((\\)?\Z))', re.DOTALL)
_OPENS, _CLOSES = 1, 2
_REST_OF_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_MAY_END = re.compile(rb"\}[ \t\r\n]*(?:\{|$)")  # without a newline, an event can only end here
_BRACE, _QUOTE = b'{"'
_OF_NUMBERS = b"0123456789+-.eE"


class _ObjectEnd:
    """Finds the end of one JSON object in chunks of any size. Reads each byte once. Remembers the depth, and whether it
    is in a string or after a backslash.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def find(self, chunk: bytes, at: int) -> int:
        """Return the position after the object, or 0 if it continues in the next chunk."""
        if self._in_string:
            at = self._leave_string(chunk, at)
        for found in _TOKEN.finditer(chunk, at):
            group = found.lastindex
            if group is None:
                continue
            if group == _OPENS:
                self._depth += 1
            elif group == _CLOSES:
                self._depth -= 1
                if not self._depth:
                    return found.end()
            else:
                self._in_string, self._escaped = True, found[4] is not None
        return 0

    def _leave_string(self, chunk: bytes, at: int) -> int:
        if self._escaped:
            self._escaped = False
            at += 1
        at = _REST_OF_STRING.match(chunk, at).end()  # type: ignore[union-attr]  # it matches nothing as well
        if at < len(chunk):
            self._in_string = chunk[at] != _QUOTE
            self._escaped = self._in_string  # the match stopped at a backslash, the last byte of the chunk
            at += 1
        return at


class EventReader:
    """Reader of events from the chunks of a watch. Like client-go, it reads a stream of JSON objects: an event may be
    indented, and the next one may follow in the same line.

    Servers write one event per line, so a line is decoded first. Only what turns out to be more or less than one event
    is searched for its end. Memory is bounded by `limit`, time is linear in what was received.
    """

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []  # parts of an event that is incomplete
        self._size = 0
        self._end: _ObjectEnd | None = None  # set while an event is searched for its end
        self._at_line = True  # the next event starts on a new line
        self._judged = 0  # bytes of the incomplete event that were found to be valid JSON so far

    @property
    def is_between_events(self) -> bool:
        return not self._size

    def feed(self, chunk: bytes) -> Iterator[WatchEvent]:
        """Yield the events that are complete now. Raise UnreadableWatch for data that cannot become one."""
        at = 0
        while at < len(chunk):
            if self._end is None:
                if self._at_line:
                    newline = chunk.find(b"\n", at) + 1
                    piece = chunk[at : newline or len(chunk)]
                    if not newline and not _MAY_END.search(piece):
                        self._begin(piece)
                        return
                    line = self._take() + piece if self._parts else piece
                    event = _whole_event(line, ends=bool(newline)) if len(line) <= self._limit else None
                    if event is not None:
                        yield event
                        at += len(piece)
                        continue
                    if len(line) > len(piece):  # it began in an earlier chunk
                        chunk, at = line + chunk[at + len(piece) :], 0
                begin = self._skip_space(chunk, at)
                if begin != at:
                    at = begin
                    continue
                self._end, self._judged = _ObjectEnd(), 0
            stop = self._end.find(chunk, at)
            self._hold(chunk[at : stop or len(chunk)])
            if not stop:
                self._judge()
                return
            self._end, self._at_line, at = None, False, stop
            yield _event(self._take())

    def _skip_space(self, chunk: bytes, at: int) -> int:
        space = _SPACE.match(chunk, at)
        assert space is not None
        if b"\n" in space[0]:
            self._at_line = True
        at = space.end()
        if at < len(chunk) and chunk[at] != _BRACE:
            # Errors never show an event: it may be a Secret.
            raise UnreadableWatch(f"expected an event, got {chunk[at : at + _MOST_SHOWN]!r}")
        return at

    def _begin(self, piece: bytes) -> None:
        """Store a line without its end."""
        if not self._parts:
            piece = piece[self._skip_space(piece, 0) :]
        if piece:
            self._hold(piece)

    def _hold(self, piece: bytes) -> None:
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            raise UnreadableWatch(f"an event is larger than {self._limit} bytes")

    def _take(self) -> bytes:
        value = b"".join(self._parts)
        self._parts, self._size = [], 0
        return value

    def _judge(self) -> None:
        """Raise UnreadableWatch if the incomplete event is not JSON: its end might never be found. Decoding it each
        time its size has doubled keeps the time linear.
        """
        if self._size < 2 * self._judged:
            return
        begun = b"".join(self._parts)
        self._parts, self._judged = [begun], self._size
        _whole_event(begun.rstrip(_OF_NUMBERS), ends=True)  # an incomplete number looks malformed


_TRUNCATED, _TRAILING = "Input data was truncated", "trailing characters"


def _whole_event(line: bytes, *, ends: bool) -> WatchEvent | None:
    """Return the event, or None if the line is not exactly one: it may be a part of one, or several. `ends`: no token
    continues after it, so that it must be valid JSON so far.
    """
    try:
        return _decode_event(line)
    except msgspec.ValidationError as error:
        raise UnreadableWatch(str(error)) from None
    except msgspec.DecodeError as error:
        text = str(error)
        if ends and text != _TRUNCATED and _TRAILING not in text:
            raise UnreadableWatch(str(error)) from None
        return None
    except _UNREADABLE as error:
        raise UnreadableWatch(str(error)) from None


def _event(value: bytes) -> WatchEvent:
    try:
        return _decode_event(value)
    except _UNREADABLE as error:
        raise UnreadableWatch(str(error)) from None
