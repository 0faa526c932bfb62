"""What an RKECluster says of the infrastructure that a driver makes for it, written into a draft. Pure.

Messages do not count seconds, so that saying the same again writes nothing.
"""

from __future__ import annotations

from typing import Any

from remuda.kube import conditions
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN, condition
from remuda.kube.waits import Wait
from remuda.providers.infrastructure.types import INFRASTRUCTURE, READY, STALLED
from remuda.providers.machine.budget import BAD_OPTIONS, RETRY, Stall
from remuda.providers.machine.cluster_job import ClusterState
from remuda.providers.machine.removal import ABANDON
from remuda.providers.machine.results import Result
from remuda.runtime.outcome import Blocked, Outcome

Json = dict[str, Any]

MAKING, MADE, REMOVING = "Making", "Made", "Removing"
FAILED = "InfrastructureError"
REMOVAL = "remove"  # in place of an order's checksum
HINT = f'to give it up and keep it out of the way, annotate the RKECluster with {ABANDON}="true"'

_FAILURE = ("failures", "lastFailureTime", "failureMessage", "hopeless", "failedOrder")


def _say(status: Json, type: str, value: str, reason: str, message: str = "", *, remove: tuple[str, ...] = ()) -> None:
    conditions.put(status, [condition(type, value, reason, message)], generation=0, remove=remove)


def _not_ready(status: Json, reason: str, message: str) -> None:
    _say(status, INFRASTRUCTURE, FALSE, reason, message)
    _say(status, READY, FALSE, reason, message)


def waits(status: Json, wait: Wait, check_after: float | None = None) -> Outcome:
    _not_ready(status, wait.reason, str(wait))
    return Blocked(wait.reason, wait.on, str(wait), check_after)


def making(status: Json, what: str, job: str, *, again: bool) -> None:
    """One that was there before is there meanwhile."""
    message = f"the driver works on what the cluster of {what} shares; its log: kubectl logs job/{job}"
    _say(status, INFRASTRUCTURE, UNKNOWN, MAKING, message, remove=(STALLED,))
    if not again:
        _say(status, READY, FALSE, MAKING, message)


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
    what = "remove" if order == REMOVAL else "make"
    then = f"; it is tried again; {HINT}" if order == REMOVAL else ""
    text = f"attempt {failures} to {what} what the cluster shares failed: {ended.message}{then}"
    _not_ready(status, BAD_OPTIONS if ended.hopeless else FAILED, text)


def stalled(status: Json, stall: Stall, last: str) -> None:
    message = (
        f"{stall.message}; the last error: {last}. No further attempt is made. Change spec.infrastructure, "
        f"or mend the cause and annotate this object with {RETRY}=<anything new>"
    )
    _say(status, STALLED, TRUE, stall.reason, message)
    _not_ready(status, stall.reason, message)


def removing(status: Json, what: str, job: str) -> None:
    message = f"the driver removes what the cluster of {what} shared; its log: kubectl logs job/{job}"
    _not_ready(status, REMOVING, message)
