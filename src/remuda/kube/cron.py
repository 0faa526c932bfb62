"""Cron schedules: validation with kube-apiserver's error messages."""

from __future__ import annotations

import re

_FIELD = r"(?:\*|\?|[0-9A-Za-z]+(?:-[0-9A-Za-z]+)?)(?:/[0-9]+)?"
_is_cron_field = re.compile(rf"{_FIELD}(?:,{_FIELD})*").fullmatch
_NICKNAMES = frozenset(("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"))
_is_every = re.compile(r"@every (?:[0-9]+(?:\.[0-9]+)?(?:h|m|s|ms|us|ns))+").fullmatch
_RANGES = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 6))


def complaint(schedule: str) -> str:
    """Return the error in a cron schedule, or an empty string."""
    text = schedule.strip()
    if text.startswith("@"):
        known = text in _NICKNAMES or _is_every(text)
        return "" if known else f"unrecognized descriptor: {text}"
    fields = text.split()
    if len(fields) != 5:
        return f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
    for field, (_, low, high) in zip(fields, _RANGES, strict=True):
        if not _is_cron_field(field):
            return f'failed to parse int from {field}: strconv.Atoi: parsing "{field}": invalid syntax'
        for number in re.findall(r"[0-9]+", re.sub(r"/[0-9]+", "", field)):
            if len(number) > 4 or int(number) > high:
                return f"end of range ({number}) above maximum ({high}): {field}"
            if int(number) < low:
                return f"beginning of range ({number}) below minimum ({low}): {field}"
    return ""
