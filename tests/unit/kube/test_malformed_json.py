"""Malformed JSON in the words of Go's reader."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.malformed_json import json_complaint, open_containers


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "unexpected end of JSON input"),
        (b'{"a', "unexpected end of JSON input"),
        (b"nul", "unexpected end of JSON input"),
        (b"x", "invalid character 'x' looking for beginning of value"),
        (b"nope", "invalid character 'o' in literal null (expecting 'u')"),
        (b"{}}", "invalid character '}' after top-level value"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b"\x81{", "invalid character '\\u0081' looking for beginning of value"),
        (b"\x00", "invalid character '\\x00' looking for beginning of value"),
        (b"'a'", "invalid character '\\'' looking for beginning of value"),
        (b'{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        (b"{}", "fine"),
    ],
)
def test_malformed_json_message_matches_go(body: bytes, said: str) -> None:
    assert json_complaint(body, "fine") == said


def test_open_containers_ignores_brackets_in_strings() -> None:
    assert open_containers(b'{"}]\\"":[') == ["{", "["]
    assert open_containers(b"[[[[", 2) == ["[", "[", "["]


@given(st.binary(max_size=30) | st.text("{}[]\",:0 nul\\'", max_size=20).map(str.encode))
def test_arbitrary_malformed_json_yields_a_printable_message(body: bytes) -> None:
    said = json_complaint(body, "fine")
    try:
        json.loads(body.decode("latin-1"))
    except ValueError:
        assert said.startswith(("invalid character '", "unexpected end"))
        assert said.isprintable()
    else:
        assert said == "fine"
