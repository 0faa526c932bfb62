"""Texts inside path elements: escaped as Go escapes them, however long they are."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.apply.element import scalar_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", '"plain"'),
        ('a"b', '"a\\"b"'),
        ("a\\nb", '"a\\\\nb"'),
        ("\n\r\t\x00\x1f", '"\\n\\r\\t\\u0000\\u001f"'),
        ("<>&\u2028\u2029", '"\\u003c\\u003e\\u0026\\u2028\\u2029"'),
    ],
)
def test_scalar_json_escapes_text_like_go(text: str, shown: str) -> None:
    assert scalar_json(text) == shown


@given(st.text())
def test_escaped_text_round_trips_through_json(text: str) -> None:
    assert msgspec.json.decode(scalar_json(text)) == text


@pytest.mark.parametrize("text", ['"', "\n", "\\", "<", '{"', "\u2028"])
def test_long_text_is_escaped_in_little_time(text: str) -> None:
    long = text * (1_500_000 // len(text))
    started = time.process_time()
    scalar_json(long)
    assert time.process_time() - started < 0.1
