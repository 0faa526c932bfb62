"""Lists and watches of a workload cluster, which may be hostile, as the manager's controllers read them."""

from __future__ import annotations

import json
from typing import NamedTuple

from remuda.kube.errors import StatusError, UnreadableWatch, status_error
from remuda.kube.http.lines import EventReader, read_change, read_list
from tests.fuzz.source import Source

_NAMES = (
    *(
        "apiVersion",
        "kind",
        "metadata",
        "items",
        "resourceVersion",
        "continue",
        "type",
        "object",
        "status",
        "code",
        "v1",
    ),
    *("ADDED", "ERROR", "BOOKMARK", "NodeList", "Node", "reason", "message", "details", "retryAfterSeconds", "causes"),
)
_LIMIT = 512  # bytes of one event


def check(data: bytes) -> None:
    """Raise if an answer is neither read nor refused with a StatusError, or its events depend on its pieces."""
    source = Source(data)
    form, size = source.byte() % 4, 1 + source.byte()
    body = source.rest() if form == 0 else json.dumps(_answer(source, form)).encode()
    for read in (read_list, _changes, lambda body: status_error(500, body)):
        try:
            read(body)
        except StatusError as error:
            assert len(str(error)) <= len(body) + 1000
    in_pieces, at_once = _events(body, size), _events(body, len(body) + 1)
    if in_pieces.refused or at_once.refused:  # an event in front of what is none may be held back with it
        shorter, longer = sorted((in_pieces.found, at_once.found), key=len)
        assert longer[: len(shorter)] == shorter
    else:
        assert in_pieces == at_once


def _answer(source: Source, form: int) -> object:
    if form == 1:
        return source.json(_NAMES)
    if form == 2:
        return {
            "kind": "NodeList",
            "apiVersion": "v1",
            "items": [source.json(_NAMES, 3) for _ in range(source.byte() % 4)],
        }
    return {"type": source.pick(("ADDED", "ERROR", "x")), "object": source.json(_NAMES)}


def _changes(body: bytes) -> None:
    for event in EventReader(limit=_LIMIT).feed(body):
        read_change(event)


class _Events(NamedTuple):
    found: list[tuple[str, bytes]]
    refused: bool
    complete: bool


def _events(body: bytes, size: int) -> _Events:
    """Read a watch in pieces of a size."""
    reader = EventReader(limit=_LIMIT)
    found: list[tuple[str, bytes]] = []
    try:
        for at in range(0, len(body), size):
            for event in reader.feed(body[at : at + size]):
                found.append((event.type, bytes(event.object)))
    except UnreadableWatch:
        return _Events(found, refused=True, complete=False)
    return _Events(found, refused=False, complete=reader.is_between_events)
