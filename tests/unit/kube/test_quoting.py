"""Text in quotes cannot forge anything around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.quoting import quoted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", '""'),
        ("plain äöü", '"plain äöü"'),
        ('say "x"\\', '"say \\"x\\"\\\\"'),
        ("\a\b\t\n\v\f\r", '"\\a\\b\\t\\n\\v\\f\\r"'),
        ("\x00\x1b\x7f", '"\\x00\\x1b\\x7f"'),
        ("\u2028\U000e0001", '"\\u2028\\U000e0001"'),
    ],
)
def test_as_go_quotes(text: str, shown: str) -> None:
    assert quoted(text) == shown


@given(st.text())
def test_nothing_escapes_from_the_quotes(text: str) -> None:
    inner = quoted(text)[1:-1]
    assert inner.isprintable()
    assert '"' not in inner.replace("\\\\", "").replace('\\"', "")
