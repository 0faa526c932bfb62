"""Events of a Secret out of the bytes of a watch, as the agent on a node reads them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent import kube, web


class Pieces(io.BufferedIOBase):
    """A response that arrives in the pieces given."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = list(pieces)

    def read1(self, size: int = -1, /) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def event(version: str, text: str = "") -> dict[str, Any]:
    secret = {"metadata": {"resourceVersion": version, "annotations": {"a": text}}, "n": [-1.5e-7, True, None]}
    return {"type": "MODIFIED", "object": secret}


def read(*pieces: bytes) -> list[tuple[str, str]]:
    return [kube._event(value) for value in kube._values(Pieces(pieces))]


@given(
    st.lists(st.tuples(st.text(max_size=10), st.sampled_from([None, 0, 2]), st.sampled_from(["\n", "", " \r\n"]))),
    st.booleans(),
    st.data(),
)
def test_watch_events_are_parsed_regardless_of_chunking_and_whitespace(
    texts: list[tuple[str, int | None, str]], ascii: bool, data: st.DataObject
) -> None:
    written = "".join(
        json.dumps(event(str(number), text), indent=indent, ensure_ascii=ascii) + gap
        for number, (text, indent, gap) in enumerate(texts)
    )
    rest, pieces = written.encode(), []
    while rest:
        size = data.draw(st.integers(1, len(rest)) | st.integers(1, min(4, len(rest))))
        pieces.append(rest[:size])
        rest = rest[size:]
    assert read(*pieces) == [("MODIFIED", str(number)) for number in range(len(texts))]


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"<html>\n",
            b"[]\n",
            b"{oops                                       \n",
            b"\xff\n",
            b'{"type":5}\n',
            b"x" * 9,
        ),
        *(b'{"type":"MODIFIED","object":{}\n' * 9, b"{" * 100_000 + b"\n", b'{"type":"MODIFIED"', b"1\n"),
    ],
)
def test_malformed_watch_event_raises_unreachable(text: bytes) -> None:
    good = json.dumps(event("1")).encode() + b"\n"
    for pieces in ([text], [good, text], [good + text]):
        with pytest.raises(
            web.ServerUnreachable, match=r"the watch (returned an invalid event|ended|at .* was interrupted)"
        ):
            read(*pieces)


def test_watch_event_above_size_limit_raises_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube, "_MOST", 1000)
    with pytest.raises(web.ServerUnreachable, match="invalid event"):
        read(b'{"type":"', *[b"x" * 100] * 100)
