"""Text in quotes cannot forge anything around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.errors import invalid, invalid_object
from remuda.kube.go_text import SHOWN, quoted


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
def test_text_is_quoted_as_go_does(text: str, shown: str) -> None:
    assert quoted(text) == shown


@given(st.text())
def test_quoted_text_contains_no_unescaped_quotes_or_control_characters(text: str) -> None:
    inner = quoted(text)[1:-1]
    assert inner.isprintable()
    assert '"' not in inner.replace("\\\\", "").replace('\\"', "")


def test_long_text_is_truncated_before_escaping() -> None:
    assert quoted("\n" * SHOWN) == '"' + "\\n" * SHOWN + '"'
    assert quoted("\n" * 3_000_000) == '"' + "\\n" * SHOWN + '..."'


def test_error_message_with_long_values_is_truncated() -> None:
    text = '{"' * 1_000_000
    error = invalid_object("", "Pod", text, [invalid("metadata.name", text, "no"), invalid("spec", [text], "no")])
    assert len(str(error.status())) < 10 * SHOWN
