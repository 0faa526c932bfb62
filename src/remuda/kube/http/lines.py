"""Lists and watches between the bytes of the wire and the bytes of objects: pure, and without decoding objects.

Items of built-in lists carry no apiVersion and kind on the wire; they are put in here, so that an object looks the same
wherever it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

import msgspec

from remuda.kube.client import Change, ChangeType, Listing
from remuda.kube.errors import StatusError, status_error

MAX_LINE = 64 * 1024 * 1024  # far above what any server stores as one object

_TYPED = (b'{"apiVersion":', b'{"kind":')  # how an item that is whole begins, spared a closer look
# What msgspec raises for the bytes of others: ValueError is that of text which is not UTF-8.
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
        # A copy of its own in either case: the Raw would keep the whole answer in memory.
        value = bytes(item)
        if not value.startswith(_TYPED) and not _decode_typed(value).kind:
            body = value[1:].lstrip()
            value = prefix + body if body != b"}" else prefix[:-1] + body
        whole.append(value)
    return whole


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_event = msgspec.json.Decoder(_Event).decode


def read_change(line: bytes) -> Change:
    """One line of a watch. Raises StatusError: the server's own for an ERROR, and for a line that is none."""
    try:
        event = _decode_event(line)
    except _UNREADABLE as error:
        raise StatusError(500, "InternalError", f"the server's watch cannot be read: {error}") from None
    value = bytes(event.object)
    if event.type == "ERROR":
        raise status_error(0, value)
    if event.type not in _TYPES:
        raise StatusError(500, "InternalError", f"the server's watch has an event of type {event.type[:50]!r}")
    return Change(event.type, value)  # type: ignore[arg-type]  # it is one of them


class LineSplitter:
    """Lines out of chunks that end anywhere. A line in many chunks is put together once, when it ends."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._limit = limit

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that are complete now, without their ends; empty ones are left out."""
        first, *rest = chunk.split(b"\n")
        self._hold(first)
        for piece in rest:
            line = b"".join(self._parts)
            self._parts, self._size = [], 0
            self._hold(piece)
            if line.strip():
                yield line

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._parts.append(piece)
            self._size += len(piece)
            if self._size > self._limit:
                raise StatusError(500, "InternalError", f"an event of the watch is larger than {self._limit} bytes")

    @property
    def is_between_lines(self) -> bool:
        return not self._size
