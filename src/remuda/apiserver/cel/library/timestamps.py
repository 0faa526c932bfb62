"""Fields of timestamps, in UTC or in a given zone, and durations in whole units."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.times import SECOND, calendar
from remuda.apiserver.cel.values import CelError, Duration, Timestamp

LIBRARY = Library()

_UTC = timedelta(0)
_FIXED_ZONE = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)
_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+\-]*(?:/[A-Za-z0-9_+\-]+)*", re.ASCII)


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if _ZONE_NAME.fullmatch(name) else None
    except (OSError, ValueError, KeyError):
        return None


def _offset(timestamp: Timestamp, zone: str) -> timedelta:
    fixed = _FIXED_ZONE.fullmatch(zone)
    if fixed:
        offset = timedelta(hours=int(fixed[2]), minutes=int(fixed[3]))
        return -offset if fixed[1] == "-" else offset
    if zone in ("", "UTC"):
        return _UTC
    known = _zone(zone)
    if known is None:
        raise CelError(f"unknown time zone {zone}")
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=timestamp.ns // 1000)
    try:
        return moment.astimezone(known).utcoffset() or _UTC
    except OverflowError:  # within a day of the limits (years 1 and 9999)
        return _UTC


# Compute each field from the calendar day and the nanoseconds of that day.
_PARTS: dict[str, Callable[[date, int], int]] = {
    "getFullYear": lambda day, ns: day.year,
    "getMonth": lambda day, ns: day.month - 1,
    "getDayOfYear": lambda day, ns: day.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda day, ns: day.day - 1,
    "getDate": lambda day, ns: day.day,
    "getDayOfWeek": lambda day, ns: day.isoweekday() % 7,
    "getHours": lambda day, ns: ns // (3600 * SECOND),
    "getMinutes": lambda day, ns: ns // (60 * SECOND) % 60,
    "getSeconds": lambda day, ns: ns // SECOND % 60,
    "getMilliseconds": lambda day, ns: ns // 10**6 % 1000,
}


def _declare(name: str, part: Callable[[date, int], int]) -> None:
    LIBRARY.method(f"timestamp.{name}(): int", lambda timestamp: part(*calendar(timestamp, _UTC)))
    LIBRARY.method(
        f"timestamp.{name}(string): int",
        lambda timestamp, zone: part(*calendar(timestamp, _offset(timestamp, zone))),
    )


for _name, _part in _PARTS.items():
    _declare(_name, _part)


def _whole(unit: int) -> Callable[[Duration], int]:
    def count(duration: Duration) -> int:
        amount = abs(duration.ns) // unit
        return amount if duration.ns >= 0 else -amount

    return count


for _name, _unit in (
    ("getHours", 3600 * SECOND),
    ("getMinutes", 60 * SECOND),
    ("getSeconds", SECOND),
    ("getMilliseconds", 10**6),
):
    LIBRARY.method(f"duration.{_name}(): int", _whole(_unit))
