"""Parsing and printing of timestamps and durations: Go's durations, RFC 3339, and the variants that schema formats
allow.

All arithmetic is in whole nanoseconds, so it is as precise as Go's.
"""

from __future__ import annotations

import re
from datetime import date, timedelta

from remuda.apiserver.cel.values import INT_MAX, INT_MIN, CelError, Duration, Timestamp, checked_timestamp

SECOND = 10**9
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_DURATION_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> Duration | None:
    """Parse a duration as Go's time.ParseDuration does; None if the text is invalid."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return Duration(0)
    total = at = 0
    while match := _DURATION_PART.match(rest, at):
        whole, fraction, unit = match.group(1), match.group(2) or "", _UNITS[match.group(3)]
        if (not whole and not fraction) or len(whole) > 19:
            return None
        total += int(whole or 0) * unit
        if fraction:
            digits = fraction[:18]
            total += int(digits) * unit // 10 ** len(digits)
        at = match.end()
    if at == 0 or at != len(rest) or not INT_MIN <= sign * total <= INT_MAX:
        return None
    return Duration(sign * total)


_LOOSE_PART = re.compile(r"(\d+)\s*([A-Za-zµ]+)")
_LOOSE_UNITS = (
    (("ns", "nano"), 1),
    (("us", "µs", "micro"), 10**3),
    (("ms", "milli"), 10**6),
    (("s", "sec"), SECOND),
    (("m", "min"), 60 * SECOND),
    (("h", "hr", "hour"), 3600 * SECOND),
    (("d", "day"), 86400 * SECOND),
    (("w", "wk", "week"), 7 * 86400 * SECOND),
)


def parse_schema_duration(text: str) -> Duration:
    """Parse a value of `format: duration`, which may also use spelled units such as "3 days"."""
    exact = parse_duration(text)
    if exact is not None:
        return exact
    total, any_unit = 0, False
    for amount, unit in _LOOSE_PART.findall(text):
        for names, factor in _LOOSE_UNITS:
            lowered = unit.lower()
            if (lowered in names or lowered.startswith(names[-1])) and len(amount) <= 19:
                total += int(amount) * factor
                any_unit = True
    if not any_unit or not INT_MIN <= total <= INT_MAX:
        raise CelError(f"Invalid duration {text}: unable to parse {text} as duration")
    return Duration(total)


def duration_text(duration: Duration) -> str:
    seconds = f"{duration.ns / SECOND:.9f}" if abs(duration.ns) < 2**53 else repr(duration.ns / SECOND)
    return (seconds.rstrip("0").rstrip(".") if "." in seconds else seconds) + "s"


_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:(Z)|([+-])(\d\d):?(\d\d))", re.ASCII)


def parse_timestamp(text: str) -> Timestamp | None:
    """Parse a timestamp as Go's RFC 3339 layout does; None if it is invalid. Years 0 and above 9999 are invalid."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    offset = _offset_seconds(match)
    if hour > 23 or minute > 59 or second > 59 or offset is None:
        return None
    try:
        days = date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    whole = days * 86400 + hour * 3600 + minute * 60 + second - offset
    nanos = int((match.group(7) or "0")[:9].ljust(9, "0"))
    try:
        return checked_timestamp(whole * SECOND + nanos, offset)
    except CelError:
        return None


def _offset_seconds(match: re.Match[str]) -> int | None:
    if match.group(8):
        return 0
    hours, minutes = int(match.group(10)), int(match.group(11))
    if hours > 24 or minutes > 59:
        return None
    return (hours * 3600 + minutes * 60) * (-1 if match.group(9) == "-" else 1)


def parse_datetime(text: str) -> Timestamp:
    """Parse a value of `format: date-time`: RFC 3339, or an empty text, which means 1970."""
    found = parse_timestamp(text) if text else Timestamp(0)
    if found is None:
        raise CelError(f"Invalid date-time formatted string {text}: cannot parse {text}")
    return found


def parse_date(text: str) -> Timestamp:
    try:
        if len(text) != 10:
            raise ValueError
        return Timestamp((date.fromisoformat(text).toordinal() - _EPOCH_DAY) * 86400 * SECOND)
    except ValueError:
        raise CelError(f"Invalid date formatted string {text}: cannot parse {text}") from None


def timestamp_text(timestamp: Timestamp) -> str:
    seconds, nanos = divmod(timestamp.ns + timestamp.offset * SECOND, SECOND)
    days, clock = divmod(seconds, 86400)
    day = date.fromordinal(days + _EPOCH_DAY)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    time = f"{clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}{fraction}"
    return f"{day.year:04d}-{day.month:02d}-{day.day:02d}T{time}{_offset_text(timestamp.offset)}"


def _offset_text(offset: int) -> str:
    if not offset:
        return "Z"
    sign, minutes = "-" if offset < 0 else "+", abs(offset) // 60
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"


def calendar(timestamp: Timestamp, offset: timedelta) -> tuple[date, int]:
    """Return the day, and the nanoseconds since its start, on a clock with this offset."""
    ns = timestamp.ns + (offset.days * 86400 + offset.seconds) * SECOND
    days, rest = divmod(ns, 86400 * SECOND)
    ordinal = min(max(days + _EPOCH_DAY, 1), date.max.toordinal())
    return date.fromordinal(ordinal), rest
