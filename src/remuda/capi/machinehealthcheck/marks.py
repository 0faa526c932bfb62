"""Changes of a verdict to a Machine: only the conditions that belong to the health check, and only if they differ.

Only the health check writes HealthCheckSucceeded. OwnerRemediated and ExternallyRemediated are shared: the health check
adds them, the remediating controller updates them, and the health check removes them when the Machine has recovered. So
it never overwrites one that is still open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from remuda.capi.machinehealthcheck.health import Healthy, Unhealthy, Verdict
from remuda.capi.types import Machine
from remuda.kube.conditions import FALSE, condition, find
from remuda.kube.objects import Condition

HEALTH_CHECK_SUCCEEDED = "HealthCheckSucceeded"
OWNER_REMEDIATED = "OwnerRemediated"
EXTERNALLY_REMEDIATED = "ExternallyRemediated"
WAITING = "WaitingForRemediation"


class Request(NamedTuple):
    """State of the external remediation of one Machine: requested, or the reason why not."""

    reason: str
    message: str

    @property
    def made(self) -> bool:
        return self.reason == WAITING


class Marks(NamedTuple):
    put: Sequence[Condition] = ()
    remove: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.put or self.remove)


def marks(machine: Machine, verdict: Verdict, *, hand_over: bool, request: Request | None) -> Marks:
    """Return the conditions to change. `hand_over`: remediation is allowed, by the owner unless `request` is set."""
    if isinstance(verdict, Healthy):
        put = _if_new(machine, condition(HEALTH_CHECK_SUCCEEDED, True, HEALTH_CHECK_SUCCEEDED))
        conversations = (OWNER_REMEDIATED, EXTERNALLY_REMEDIATED)
        return Marks(put, [type for type in conversations if find(machine.status.conditions, type)])
    if not isinstance(verdict, Unhealthy):
        return Marks()
    put = _if_new(machine, condition(HEALTH_CHECK_SUCCEEDED, False, verdict.reason, verdict.message))
    if hand_over:
        put += _to_somebody_else(machine, request) if request is not None else _to_owner(machine)
    return Marks(put)


def _to_owner(machine: Machine) -> list[Condition]:
    if _open(find(machine.status.conditions, OWNER_REMEDIATED)):
        return []
    owner = machine.metadata.controller
    whom = f"{owner.kind} {owner.name}" if owner else "an owner; the Machine has none: replace it yourself"
    return [condition(OWNER_REMEDIATED, False, WAITING, f"Waiting for remediation by {whom}")]


def _to_somebody_else(machine: Machine, request: Request) -> list[Condition]:
    present = find(machine.status.conditions, EXTERNALLY_REMEDIATED)
    if request.made and _open(present) and present is not None and present.reason not in _FAILURES:
        return []
    return _if_new(machine, condition(EXTERNALLY_REMEDIATED, False, request.reason, request.message))


def requested(kind: str, name: str) -> Request:
    return Request(WAITING, f"Waiting for {kind} {name}")


def template_not_found(message: str) -> Request:
    return Request("RemediationTemplateNotFound", message)


def request_failed(message: str) -> Request:
    return Request("RemediationRequestCreationFailed", message)


_FAILURES = (template_not_found("").reason, request_failed("").reason)


def _open(present: Condition | None) -> bool:
    return present is not None and present.status == FALSE


def _if_new(machine: Machine, wanted: Condition) -> list[Condition]:
    present = find(machine.status.conditions, wanted.type)
    same = present is not None and (present.status, present.reason, present.message) == (
        wanted.status,
        wanted.reason,
        wanted.message,
    )
    return [] if same else [wanted]
