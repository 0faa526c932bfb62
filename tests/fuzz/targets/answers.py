"""Lists and watches of a workload cluster, which may be hostile, as the manager's controllers read them."""

from __future__ import annotations

import json

from remuda.kube.errors import StatusError, status_error
from remuda.kube.http.lines import LineSplitter, read_change, read_list
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
_LIMIT = 512  # bytes of one line


def check(data: bytes) -> None:
    """Raise if an answer is neither read nor refused with a StatusError, or its lines depend on its pieces."""
    source = Source(data)
    form, size = source.byte() % 4, 1 + source.byte()
    body = source.rest() if form == 0 else json.dumps(_answer(source, form)).encode()
    for read in (read_list, read_change, lambda body: status_error(500, body)):
        try:
            read(body)
        except StatusError as error:
            assert len(str(error)) <= len(body) + 1000
    assert _lines(body, size) == _lines(body, len(body) + 1)


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


def _lines(body: bytes, size: int) -> list[bytes] | str:
    splitter, lines = LineSplitter(limit=_LIMIT), []
    try:
        for at in range(0, len(body), size):
            lines += splitter.feed(body[at : at + size])
    except StatusError as error:
        return str(error)
    return lines
