"""Limits of remediation: if too many Machines are unhealthy, the fault is elsewhere and replacing them hurts.

Every target that is not known to be healthy counts, also one that is still starting.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from remuda.capi import amounts
from remuda.capi.types.machinehealthcheck import RemediationTrigger

DEFAULT_MOST = "100%"

_RANGE = re.compile(r"\[([0-9]+)-([0-9]+)\]", re.ASCII)


class Limit(NamedTuple):
    allowed: bool
    remaining: int  # how many more Machines may become unhealthy before remediation stops
    explanation: str


def limit(trigger: RemediationTrigger, expected: int, not_healthy: int) -> Limit:
    """Raises ValueError where the trigger cannot be read."""
    least, most, words = _bounds(trigger, expected)
    if least <= not_healthy <= most:
        return Limit(True, most - not_healthy, "")
    verb = "is" if not_healthy == 1 else "are"
    explanation = f"{not_healthy} of {expected} Machines {verb} not healthy; remediation requires {words}"
    return Limit(False, 0, explanation)


def _bounds(trigger: RemediationTrigger, expected: int) -> tuple[int, int, str]:
    if trigger.unhealthy_in_range:
        found = _RANGE.fullmatch(trigger.unhealthy_in_range)
        if found is None:
            raise ValueError(f"{trigger.unhealthy_in_range!r} is not a range like '[3-5]'")
        least, most = int(found[1]), int(found[2])
        if most < least:
            raise ValueError(f"{trigger.unhealthy_in_range!r} is an empty range")
        return least, most, f"between {least} and {most}"
    amount = trigger.unhealthy_less_than_or_equal_to
    most = amounts.resolve(DEFAULT_MOST if amount is None else amount, expected, up=False)
    return 0, most, f"at most {most}" + (f" ({amount})" if isinstance(amount, str) else "")
