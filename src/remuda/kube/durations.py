"""Durations in Go's syntax, as manifests use them: `90s`, `1h30m`."""

from __future__ import annotations

import re

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(ns|us|µs|μs|ms|s|m|h)")


class BadDuration(ValueError):
    """The text is for users."""


def parse(text: str) -> float:
    """Return the seconds of a duration. Raises BadDuration."""
    sign = -1.0 if text.startswith("-") else 1.0
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    total, at = 0.0, 0
    while part := _PART.match(rest, at):
        total += float(part[1]) * _SECONDS[part[2]]
        at = part.end()
    if not rest or at != len(rest):
        raise BadDuration("is not a duration, such as 90s, 10m or 1h30m")
    return sign * total
