from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.apiserver.http.decode import read_patch
from remuda.apiserver.http.numbers import NumberTooLarge, decode_numbers

from .fakes import WIDGETS
from .test_decode import YAML, read, refusal


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("9223372036854775807", 9223372036854775807),
        ("9223372036854775808", 9223372036854776000),
        ("-9223372036854775809", -9223372036854776000),
        ("18446744073709551616", 18446744073709552000),
        ("123456789012345680000.0", 123456789012345680000),
        ("1.0", 1),
        ("1e3", 1000),
        ("1.50", 1.5),
        ("1e22", 1e22),
        ('"9223372036854775808"', "9223372036854775808"),
    ],
)
def test_decoded_numbers_match_go_formatting(sent: str, kept: Any) -> None:
    found = decode_numbers(f'{{"a":[{sent}]}}'.encode())["a"][0]
    assert (type(found), found) == (type(kept), kept)


@pytest.mark.parametrize("sent", ["1e400", "-1e400", "9" * 400])
def test_number_overflowing_float64_is_rejected(sent: str) -> None:
    with pytest.raises(NumberTooLarge, match=sent):
        decode_numbers(f"[{sent}]".encode())


def test_go_number_normalization_applies_only_to_custom_resources() -> None:
    head = {"apiVersion": "example.com/v1", "kind": "Widget"}
    assert repr(read(json.dumps({**head, "n": 2.0}).encode(), resource=WIDGETS)[0]["n"]) == "2"
    assert repr(read(b"apiVersion: example.com/v1\nkind: Widget\nn: 2.0\n", YAML, WIDGETS)[0]["n"]) == "2"
    assert repr(read(b'{"n":2.0}')[0]["n"]) == "2.0"
    assert repr(read_patch(b'{"n":2.0}', "merge", "Warn", custom=True)[0]["n"]) == "2"
    assert repr(read_patch(b'{"n":2.0}', "merge", "Warn")[0]["n"]) == "2.0"
    huge = json.dumps(head)[:-1] + ',"n":1e400}'
    assert str(refusal(huge.encode(), resource=WIDGETS)) == (
        'Widget in version "v1" cannot be handled as a Widget: '
        "json: cannot unmarshal number 1e400 into Go value of type float64"
    )
