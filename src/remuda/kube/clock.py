"""The wall clock, and times as the API writes them: `Time` in whole seconds, `MicroTime` with six digits, always UTC.

All code that writes or compares times of objects uses this module, so that the simulator can replace the clock in one
place. Durations are in Go's syntax, as manifests use them: `90s`, `1h30m`.
"""

from __future__ import annotations

import re
import time as system_time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache


def rfc3339(seconds: float) -> str:
    """Format a time as `2026-01-02T03:04:05Z`, truncated to the second."""
    return system_time.strftime("%Y-%m-%dT%H:%M:%SZ", system_time.gmtime(seconds))


def rfc3339_micro(seconds: float) -> str:
    """Format a time as `2026-01-02T03:04:05.678901Z`."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond:06d}Z"


_source: Callable[[], float] = system_time.time


def use(source: Callable[[], float] | None) -> None:
    """Take the time from `source` from now on; None: from the system again."""
    global _source
    _source = source or system_time.time


def time() -> float:
    """Return the seconds since the epoch."""
    return _source()


def now() -> str:
    return _second(int(_source()))


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    """Return the formatted current second, cached, because formatting would be a tenth of the cost of a small write."""
    return rfc3339(second)


def now_micro() -> str:
    return rfc3339_micro(_source())


def parse(text: str) -> float:
    """Return the seconds since the epoch of an RFC 3339 time. Raise ValueError, also for a time without a zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.timestamp()


_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(ns|us|µs|μs|ms|s|m|h)")


class BadDuration(ValueError):
    """Invalid duration; the text is for users."""


def parse_duration(text: str) -> float:
    """Return the seconds of a duration. Raises BadDuration."""
    sign = -1.0 if text.startswith("-") else 1.0
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    total, at = 0.0, 0
    while part := _DURATION_PART.match(rest, at):
        total += float(part[1]) * _UNIT_SECONDS[part[2]]
        at = part.end()
    if not rest or at != len(rest):
        raise BadDuration("is not a duration, such as 90s, 10m or 1h30m")
    return sign * total
