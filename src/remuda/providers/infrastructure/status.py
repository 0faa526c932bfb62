"""Status of an RKECluster about the infrastructure that a driver creates for it, written into a draft. Pure.

Messages contain no running seconds, so that reporting the same state again writes nothing.
"""

from __future__ import annotations

from typing import Any

from remuda.kube import conditions
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN, condition
from remuda.kube.objects import Key
from remuda.kube.wait import Wait
from remuda.providers.shared import names
from remuda.providers.shared.jobs import budget
from remuda.providers.shared.jobs.budget import BAD_OPTIONS, RETRY, Rules, Stall
from remuda.providers.shared.jobs.cluster_job import ClusterState
from remuda.providers.shared.jobs.results import Result, error_line
from remuda.providers.shared.types.infrastructure import INFRASTRUCTURE, READY, STALLED, InfrastructureStatus
from remuda.runtime.outcome import Blocked, Outcome

Json = dict[str, Any]

MAKING, MADE, REMOVING = "Making", "Made", "Removing"
FAILED = "InfrastructureError"
REMOVAL = "remove"  # in place of an order's checksum
HINT = f'to abandon it and delete the RKECluster anyway, annotate the RKECluster with {names.ABANDON}="true"'

_FAILURE = ("failures", "lastFailureTime", "failureMessage", "hopeless", "failedOrder")


def _say(status: Json, type: str, value: str, reason: str, message: str = "", *, remove: tuple[str, ...] = ()) -> None:
    conditions.put(status, [condition(type, value, reason, message)], generation=0, remove=remove)


def _not_ready(status: Json, reason: str, message: str) -> None:
    _say(status, INFRASTRUCTURE, FALSE, reason, message)
    _say(status, READY, FALSE, reason, message)


def waits(status: Json, wait: Wait, check_after: float | None = None) -> Outcome:
    _not_ready(status, wait.reason, str(wait))
    return Blocked(wait.reason, wait.on, str(wait), check_after)


def making(status: Json, known: InfrastructureStatus, what: str, job: Key, rules: Rules) -> None:
    """Report a running Job. Infrastructure that already exists stays ready meanwhile."""
    attempt = f"{budget.attempt(rules, known.failures + 1)}{_last_error(known)}: " if known.failures else ""
    message = f"{attempt}the driver is creating or updating the infrastructure of {what}; its log: {_log(job)}"
    _say(status, INFRASTRUCTURE, UNKNOWN, MAKING, message, remove=(STALLED,))
    if not known.applied:
        _say(status, READY, FALSE, MAKING, message)


def _log(job: Key) -> str:
    return f"kubectl logs -n {job.namespace} job/{job.name}"


def _last_error(known: InfrastructureStatus) -> str:
    return f", last error: {error_line(known.failure_message)}" if known.failure_message else ""


def made(status: Json) -> None:
    status.setdefault("initialization", {})["provisioned"] = True
    _say(status, INFRASTRUCTURE, TRUE, MADE, remove=(STALLED,))
    _say(status, READY, TRUE, "Provisioned")


def applied(status: Json, known: ClusterState, order: str, job: str) -> None:
    found = status.setdefault("infrastructure", {})
    for name in _FAILURE:
        found.pop(name, None)
    found |= {"id": known.id, "network": dict(known.network), "applied": order, "countedJob": job}
    made(status)


def failed(status: Json, ended: Result, job: str, order: str, failures: int, now: str) -> None:
    status.setdefault("infrastructure", {}).update(
        failures=failures,
        lastFailureTime=now,
        countedJob=job,
        failureMessage=ended.message,
        failedOrder=order,
        hopeless=ended.hopeless,
    )
    what = "remove" if order == REMOVAL else "create"
    then = f"; the controller retries; {HINT}" if order == REMOVAL else ""
    text = f"attempt {failures} to {what} the cluster infrastructure failed: {error_line(ended.message)}{then}"
    _not_ready(status, BAD_OPTIONS if ended.hopeless else FAILED, text)


def stalled(status: Json, known: InfrastructureStatus, stall: Stall) -> None:
    message = (
        f"{stall.message}{_last_error(known)}. The controller no longer retries. Change spec.infrastructure, or fix "
        f"the cause and annotate this object with {RETRY}=<new value>"
    )
    _say(status, STALLED, TRUE, stall.reason, message)
    _not_ready(status, STALLED, message)


def removing(status: Json, what: str, job: Key) -> None:
    message = f"the driver is removing the infrastructure of {what}; its log: {_log(job)}"
    _not_ready(status, REMOVING, message)
