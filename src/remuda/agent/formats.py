"""Read and write the formats of plan Secrets: JSON, gzip of JSON, and dates as Unix prints them. Pure."""

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
_MOST_UNPACKED = 64 << 20  # bytes; far above what this agent writes
_GZIP = 31  # wbits of zlib for the gzip format


class TooLarge(ValueError):
    """The content of a gzip is larger than its reader accepts."""


def parse_json(content: bytes | str) -> Any:
    """Return the value of a JSON text. Raises ValueError, also for one that is nested too deeply: a text of a kilobyte
    would otherwise end its reader by a RecursionError, which is no ValueError."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def pack(value: Json) -> bytes:
    """Return gzip of JSON, as outputs are stored. The same value gives the same bytes."""
    packer = zlib.compressobj(wbits=_GZIP)
    content = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return packer.compress(content) + packer.flush()


def unpack(value: bytes) -> Json:
    """Return the decompressed JSON object; empty when it is unreadable, or too large to be the agent's own."""
    if not value:
        return {}
    try:
        found = parse_json(inflate(value, _MOST_UNPACKED))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def inflate(value: bytes, most: int) -> bytes:
    """Return the content of a gzip of one member. Raises TooLarge if it has more than `most` bytes, and ValueError if
    it is damaged. A gzip can be a thousandth of its content, so no more than `most` bytes are ever unpacked."""
    reader = zlib.decompressobj(wbits=_GZIP)
    try:
        content = reader.decompress(value, most + 1)  # one more: zlib reads the end of a content that fits exactly
    except zlib.error as error:
        raise ValueError(f"damaged gzip: {error}") from None
    if len(content) > most:
        raise TooLarge(f"unpacks to more than {most} bytes")
    if not reader.eof:
        raise ValueError("damaged gzip: it ends early")
    return content


def fitted(outputs: Json, room: int) -> bytes:
    """Pack outputs into at most `room` bytes. The longest outputs are shortened until they fit."""
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
    """Return the beginning and the end of an output, with the number of bytes left out between them. `left_out`: bytes
    that were left out before."""
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
    """Return the seconds since the epoch. The zone is read as UTC, because abbreviations of zones are ambiguous."""
    words = date.split()
    try:
        _, month, day, clock, _, year = words
        hour, minute, second = clock.split(":")
        moment = (int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second))
        return float(calendar.timegm(moment))
    except (ValueError, OverflowError):
        return None
