"""How outputs and times are written into the Secret: gzip of JSON, and dates as Unix prints them. Pure."""

from __future__ import annotations

import base64
import calendar
import json
import time
import zlib
from typing import Any

Json = dict[str, Any]

MOST_OUTPUT = 256 << 10  # bytes of one stream that are kept
_LEAST_OUTPUT = 64
_GZIP = 31  # how zlib is told to read and write it


def pack(value: Json) -> bytes:
    """As outputs are kept: the same value gives the same bytes."""
    packer = zlib.compressobj(wbits=_GZIP)
    content = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return packer.compress(content) + packer.flush()


def unpack(value: bytes) -> Json:
    """What is not readable, or too large to have been ours, is as if it were not there."""
    if not value:
        return {}
    reader = zlib.decompressobj(wbits=_GZIP)
    try:
        content = reader.decompress(value, 64 << 20)
        found = json.loads(content) if not reader.unconsumed_tail else None
    except (zlib.error, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def fitted(outputs: Json, room: int) -> bytes:
    """Packed into so many bytes: the longest outputs are shortened, as often as that takes."""
    packed, most = pack(outputs), MOST_OUTPUT
    while len(packed) > room and most >= _LEAST_OUTPUT:
        outputs = {name: _shorter(output, most) for name, output in outputs.items()}
        packed, most = pack(outputs), most // 2
    return packed if len(packed) <= room else pack({})


def _shorter(output: Any, most: int) -> Any:
    if isinstance(output, dict):
        return {key: _shorter(value, most) if key in ("stdout", "stderr") else value for key, value in output.items()}
    if not isinstance(output, str):
        return output
    try:
        return base64.b64encode(shortened(base64.b64decode(output), most)).decode()
    except ValueError:
        return output


def shortened(output: bytes, most: int, left_out: int = 0) -> bytes:
    """The beginning and the end, and between them how much is missing; `left_out` went missing before."""
    if len(output) <= most and not left_out:
        return output
    half = min(most, len(output)) // 2
    missing = left_out + len(output) - 2 * half
    return output[:half] + f"\n[{missing} bytes left out]\n".encode() + output[len(output) - half :]


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def unix_date(seconds: float) -> str:
    """`Thu Jan  1 00:00:00 UTC 2026`: in English whatever the locale, the day padded with a blank."""
    at = time.gmtime(seconds)
    clock = f"{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}"
    return f"{_DAYS[at.tm_wday]} {_MONTHS[at.tm_mon - 1]} {at.tm_mday:2d} {clock} UTC {at.tm_year}"


def seconds_of(date: str) -> float | None:
    """Seconds since the epoch, whatever the zone is called: its abbreviation says nothing certain."""
    words = date.split()
    try:
        _, month, day, clock, _, year = words
        hour, minute, second = clock.split(":")
        moment = (int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second))
        return float(calendar.timegm(moment))
    except (ValueError, OverflowError):
        return None
