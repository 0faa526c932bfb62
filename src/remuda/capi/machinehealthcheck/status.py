"""The status of a MachineHealthCheck, derived from its targets and their verdicts, and the limit of its remediation.

If too many Machines are unhealthy, the fault is elsewhere and replacing them hurts. Every target that is not known to
be healthy counts against the limit, also one that is still starting.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from remuda.capi import amounts
from remuda.capi.machinehealthcheck.health import Healthy, Pending, Unhealthy, Verdict
from remuda.capi.types import Machine
from remuda.capi.types.machinehealthcheck import RemediationTrigger
from remuda.kube.conditions import condition
from remuda.kube.objects import Condition

REMEDIATION_ALLOWED = "RemediationAllowed"
DEFAULT_MOST = "100%"

_MOST_TARGETS = 10_000  # limit of the schema
_MOST_NAMES = 3
_RANGE = re.compile(r"\[([0-9]+)-([0-9]+)\]", re.ASCII)


class Judged(NamedTuple):
    machine: Machine
    verdict: Verdict


class Survey(NamedTuple):
    """All targets of one health check, judged at one moment, by name."""

    judged: Sequence[Judged]

    @property
    def expected(self) -> int:
        return len(self.judged)

    @property
    def healthy(self) -> int:
        return sum(_counts_as_healthy(verdict) for _, verdict in self.judged)

    @property
    def unhealthy(self) -> list[str]:
        return [machine.metadata.name for machine, verdict in self.judged if isinstance(verdict, Unhealthy)]

    @property
    def next_check(self) -> float | None:
        """Return the earliest time at which a verdict may change without any event."""
        expiries = [verdict.check_at for _, verdict in self.judged if isinstance(verdict, Pending)]
        return min((expiry for expiry in expiries if expiry is not None), default=None)

    def limit(self, trigger: RemediationTrigger) -> Limit:
        try:
            return limit(trigger, self.expected, self.expected - self.healthy)
        except ValueError as error:  # without admission it may be stored; then no Machine is remediated
            return Limit(False, 0, f"spec.remediation.triggerIf is invalid: {error}")


def _counts_as_healthy(verdict: Verdict) -> bool:
    return isinstance(verdict, Healthy) or (isinstance(verdict, Pending) and verdict.counts_as_healthy)


def counts(survey: Survey, found: Limit) -> dict[str, Any]:
    """The fields of the status besides its conditions."""
    targets = [machine.metadata.name for machine, _ in survey.judged]
    return {
        "expectedMachines": survey.expected,
        "currentHealthy": survey.healthy,
        "remediationsAllowed": found.remaining,
        "targets": targets[:_MOST_TARGETS],
    }


def remediation_allowed(survey: Survey, found: Limit, unreadable: str) -> Condition:
    """Return RemediationAllowed. `unreadable`: why Nodes cannot be read, and so do not count; empty if they can."""
    lines = []
    if not found.allowed:
        lines.append(f"Remediation is not allowed: {found.explanation}")
        if survey.unhealthy:
            lines.append(f"Unhealthy: {_names(survey.unhealthy)}")
    if unreadable:
        lines.append(f"{unreadable}; no Machine is remediated because of its Node until the connection is restored")
    message = lines[0] if len(lines) == 1 else "\n".join(f"* {line}" for line in lines)
    reason = REMEDIATION_ALLOWED if found.allowed else "TooManyUnhealthy"
    return condition(REMEDIATION_ALLOWED, found.allowed, reason, message)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown}, ... ({len(names) - _MOST_NAMES} more)"


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
