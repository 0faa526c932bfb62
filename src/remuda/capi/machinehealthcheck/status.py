"""The status of a MachineHealthCheck, derived from its targets and their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from remuda.capi.machinehealthcheck.health import Healthy, Pending, Unhealthy, Verdict
from remuda.capi.machinehealthcheck.limits import Limit, limit
from remuda.capi.types import Machine
from remuda.capi.types.machinehealthcheck import RemediationTrigger
from remuda.kube.conditions import condition
from remuda.kube.objects import Condition

REMEDIATION_ALLOWED = "RemediationAllowed"

_MOST_TARGETS = 10_000  # what the schema holds
_MOST_NAMES = 3


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
