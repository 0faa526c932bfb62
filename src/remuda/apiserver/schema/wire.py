"""Strings that Go's types read themselves: times and bytes of built-in kinds, with the errors those types give.

Whatever is accepted here is stored as it was sent, except base64 with line breaks, which Go would not send back.
"""

from __future__ import annotations

import binascii
import re

from remuda.apiserver.schema.formats import is_date, is_plain_utc
from remuda.kube.quoting import quoted

_LAYOUT = "2006-01-02T15:04:05Z07:00"
_is_rfc3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.,][0-9]+)?"
    r"(Z|[+-]([01][0-9]|2[0-4]):[0-5][0-9])"
).fullmatch
_ELEMENTS = (
    ("2006", "[0-9]{4}"),
    ("-", "-"),
    ("01", "[0-9]{2}"),
    ("-", "-"),
    ("02", "[0-9]{2}"),
    ("T", "T"),
    ("15", "[0-9]{2}"),
    (":", ":"),
    ("04", "[0-9]{2}"),
    (":", ":"),
    ("05", "[0-9]{2}([.,][0-9]+)?"),
    ("Z07:00", "Z|[+-][0-9]{2}:[0-9]{2}"),
)
_MATCHERS = tuple((name, re.compile(pattern).match) for name, pattern in _ELEMENTS)


def is_time(text: str) -> bool:
    if is_plain_utc(text):
        return True
    parts = _is_rfc3339(text)
    return parts is not None and is_date(parts[1])


def time_error(text: str) -> str:
    """What Go's time.Parse says of a text that is not a time, or an empty string."""
    if is_time(text):
        return ""
    said = f"parsing time {quoted(text)}"
    position = 0
    for name, match in _MATCHERS:
        found = match(text, position)
        if found is None:
            return f'{said} as "{_LAYOUT}": cannot parse {quoted(text[position:])} as "{name}"'
        position = found.end()
    if position < len(text):
        return f"{said}: extra text: {quoted(text[position:])}"
    return f"{said}: {_out_of_range(text)} out of range"


def _out_of_range(text: str) -> str:
    if not "01" <= text[5:7] <= "12":
        return "month"
    if not is_date(text[:10]):
        return "day"
    for name, digits, limit in (
        ("hour", text[11:13], "23"),
        ("minute", text[14:16], "59"),
        ("second", text[17:19], "59"),
    ):
        if digits > limit:
            return name
    return "time zone offset hour" if text[-5:-3] > "24" else "time zone offset minute"


def is_bytes(text: str) -> bool:
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return False
    return len(text) % 4 == 0


def without_line_breaks(text: str) -> str:
    return text.replace("\r", "").replace("\n", "")


_not_base64 = re.compile(r"[^A-Za-z0-9+/]").search


def bytes_error(text: str) -> str:
    """What Go's base64 decoder says, or an empty string. The position is that of the first bad byte."""
    if is_bytes(without_line_breaks(text)):
        return ""
    bad = _not_base64(text.rstrip("=\r\n"))
    return f"illegal base64 data at input byte {bad.start() if bad else max(len(text) - len(text) % 4, 0)}"
