"""Strings that Go's types parse themselves: times and bytes of built-in kinds, with the errors of those types.

Accepted strings are stored as sent, except base64 with line breaks, which Go would not return.
"""

from __future__ import annotations

import binascii
import re

from remuda.apiserver.schema.formats import is_date, is_plain_utc
from remuda.kube.go_text import quoted

_DATE_AND_CLOCK = r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_ZONE = r"(Z|[+-]([01][0-9]|2[0-4]):[0-5][0-9])"
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
)
_SECONDS = (("05", "[0-9]{2}([.,][0-9]+)?"),)
_MICROSECONDS = (("05", "[0-9]{2}"), (".000000", "[.,][0-9]{6}"))
_OFFSET = ("Z07:00", "Z|[+-][0-9]{2}:[0-9]{2}")


class _Layout:
    """Format of a time, as Go's time.Parse reads it."""

    def __init__(self, fraction: str, seconds: tuple[tuple[str, str], ...]) -> None:
        elements = (*_ELEMENTS, *seconds, _OFFSET)
        self._name = "".join(name for name, _ in elements)
        self._matchers = tuple((name, re.compile(pattern).match) for name, pattern in elements)
        self._whole = re.compile(_DATE_AND_CLOCK + fraction + _ZONE).fullmatch

    def fits(self, text: str) -> bool:
        parts = self._whole(text)
        return parts is not None and is_date(parts[1])

    def error(self, text: str) -> str:
        """Return Go's error for a text that is not a time in this layout, or an empty string."""
        if self.fits(text):
            return ""
        said = f"parsing time {quoted(text)}"
        position = 0
        for name, match in self._matchers:
            found = match(text, position)
            if found is None:
                return f'{said} as "{self._name}": cannot parse {quoted(text[position:])} as "{name}"'
            position = found.end()
        if position < len(text):
            return f"{said}: extra text: {quoted(text[position:])}"
        return f"{said}: {_out_of_range(text)} out of range"


_TIME = _Layout("([.,][0-9]+)?", _SECONDS)
_MICRO_TIME = _Layout("[.,][0-9]{6}", _MICROSECONDS)
MICRO_TIME = "MicroTime"  # the `ref` of times that must have exactly six fractional digits

is_micro_time = _MICRO_TIME.fits
micro_time_error = _MICRO_TIME.error
time_error = _TIME.error


def is_time(text: str) -> bool:
    return bool(is_plain_utc(text)) or _TIME.fits(text)


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
    """Return the error of Go's base64 decoder, or an empty string. The position is that of the first bad byte."""
    if is_bytes(without_line_breaks(text)):
        return ""
    bad = _not_base64(text.rstrip("=\r\n"))
    return f"illegal base64 data at input byte {bad.start() if bad else max(len(text) - len(text) % 4, 0)}"
