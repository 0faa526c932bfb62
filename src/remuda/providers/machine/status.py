"""Status of a machine: conditions and fields, written into a draft. Pure.

Messages contain no seconds or attempts that change by themselves, so that reporting the same state again writes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.capi.pause import paused
from remuda.kube import clock, conditions
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN, condition
from remuda.kube.objects import Key, ObjectMeta
from remuda.providers.shared.jobs import budget
from remuda.providers.shared.jobs.budget import RETRY, FailedAttempts, Rules, Stall
from remuda.providers.shared.jobs.results import error_line
from remuda.providers.shared.jobs.state import State
from remuda.providers.shared.types.machine import (
    CREATE_ERROR,
    CREATE_JOB,
    DELETE_ERROR,
    DELETE_JOB,
    READY,
    STALLED,
    DriverMachine,
    DriverMachineStatus,
)

Json = dict[str, Any]

CREATING = "Creating"
CREATED = "Created"  # the server runs the script itself: its agent has to call
BOOTSTRAPPED = "Bootstrapped"
RETRYING = "Retrying"
REMOVING = "Removing"
REMOVED = "Removed"
WAITING_FOR_AGENT = "WaitingForAgent"
PROVISIONED = "Provisioned"

_FAILURE = ("failureReason", "failureMessage", "failures", "lastFailureTime")


def say(status: Json, *said: tuple[str, str, str, str], remove: tuple[str, ...] = ()) -> None:
    """Set conditions, each given as (type, status, reason, message)."""
    conditions.put(status, [condition(*one) for one in said], generation=0, remove=remove)


def not_paused(status: Json) -> None:
    conditions.put(status, [paused(None, ObjectMeta())], generation=0)


def waits(status: Json, reason: str, message: str) -> None:
    """Report why the machine is not ready. The failure of the previous attempt stays in its own fields."""
    say(status, (READY, FALSE, reason, message))


# ---- creating ------------------------------------------------------------------------------------------------------


def creating(status: Json, before: DriverMachineStatus, kind: str, machine: Key, job: str, rules: Rules) -> None:
    """Report a running create Job. The condition also records that a server may have been requested."""
    status["jobName"] = job
    attempt = f"{budget.attempt(rules, before.failures + 1)}{last_error(before)}: " if before.failures else ""
    message = f"{attempt}creating the server of {kind} {machine}; its log: {_log(machine)}"
    say(status, (CREATE_JOB, UNKNOWN, CREATING, message), (READY, FALSE, CREATING, message), remove=(STALLED,))


def _log(machine: Key) -> str:
    return f"remuda machine logs {machine.name} -n {machine.namespace}"


def last_error(status: DriverMachineStatus) -> str:
    """Return a clause for a message; empty where nothing has failed."""
    return f", last error: {error_line(status.failure_message)}" if status.failure_message else ""


def create_failed(
    status: Json, before: DriverMachineStatus, job: str, message: str, hopeless: bool, now: str, rules: Rules
) -> None:
    failures = before.failures + 1
    status |= {
        "failures": failures,
        "lastFailureTime": now,
        "countedJob": job,
        "failureReason": CREATE_ERROR,
        "failureMessage": message,
    }
    text = f"{budget.attempt(rules, failures)} to create the server failed: {error_line(message)}"
    reason = budget.BAD_OPTIONS if hopeless else CREATE_ERROR
    say(status, (CREATE_JOB, FALSE, reason, text), (READY, FALSE, CREATE_ERROR, text))


def stalled(status: Json, before: DriverMachineStatus, stall: Stall) -> None:
    """Report a permanent failure. Without a failed attempt, it also sets failureReason and failureMessage."""
    if not before.failures:
        status |= {"failureReason": stall.reason, "failureMessage": stall.message}
    last = last_error(before) if before.failures else ""
    message = (
        f"{stall.message}{last}. The controller no longer retries. Change the template, or fix the cause and annotate "
        f"this object with {RETRY}=<new value>"
    )
    say(status, (STALLED, TRUE, stall.reason, message), (READY, FALSE, STALLED, message))


def begin_anew(status: Json, retry: str, what: str = CREATE_JOB) -> None:
    """Reset the recorded failures and report the retry."""
    status["retried"] = retry
    _forget_failure(status)
    say(status, (what, UNKNOWN, RETRYING, f"retry requested by annotation {RETRY}={retry}"), remove=(STALLED,))


def attempts(machine: DriverMachine) -> FailedAttempts:
    status = machine.status
    found = conditions.find(status.conditions, CREATE_JOB)
    return FailedAttempts(
        failures=status.failures,
        last_failure=_seconds(status.last_failure_time),
        hopeless=found is not None and found.status == FALSE and found.reason == budget.BAD_OPTIONS,
    )


def created(status: Json, spec: Json, found: State, driver: str) -> None:
    """Write the known facts about an existing server."""
    spec["providerID"] = found.provider_id or f"{driver}://{found.id or found.name}"
    status["addresses"] = [msgspec.to_builtins(one) for one in found.addresses]
    if found.failure_domain:
        status["failureDomain"] = found.failure_domain
    _forget_failure(status)
    reason = CREATED if found.by_user_data else BOOTSTRAPPED
    say(status, (CREATE_JOB, TRUE, reason, ""), remove=(STALLED,))


def waits_for_agent(status: Json, provider_id: str, bootstrap: str) -> None:
    message = (
        f"server {provider_id} is created and runs the bootstrap script; waiting for its agent to connect (condition "
        f"AgentConnected of RKEBootstrap {bootstrap})"
    )
    waits(status, WAITING_FOR_AGENT, message)


def provisioned(status: Json) -> None:
    status["ready"] = True
    status.setdefault("initialization", {})["provisioned"] = True
    say(status, (READY, TRUE, PROVISIONED, ""), remove=(STALLED,))


# ---- removing ------------------------------------------------------------------------------------------------------


def begins_to_go(status: Json) -> None:
    """Report that removal begins. The result of the creation no longer matters and does not count."""
    _forget_failure(status)
    say(status, (DELETE_JOB, UNKNOWN, REMOVING, ""), remove=(STALLED,))


def removing(status: Json, kind: str, machine: Key, job: str) -> None:
    status["jobName"] = job
    message = f"removing the server of {kind} {machine}; its log: {_log(machine)}"
    say(status, (DELETE_JOB, UNKNOWN, REMOVING, message), (READY, FALSE, REMOVING, message))


def stopping(status: Json, job: str) -> None:
    message = f"waiting for Job {job}, which creates the server, to stop; then the server is removed"
    say(status, (READY, FALSE, REMOVING, message))


def remove_failed(
    status: Json, before: DriverMachineStatus, job: str, message: str, hopeless: bool, now: str, hint: str
) -> None:
    failures = before.failures + 1
    status |= {"failures": failures, "lastFailureTime": now, "countedJob": job}
    text = f"attempt {failures} to remove the server failed: {error_line(message)}"
    cannot_remove(status, text, hint, budget.BAD_OPTIONS if hopeless else DELETE_ERROR)


def cannot_remove(status: Json, message: str, hint: str, reason: str = DELETE_ERROR) -> None:
    """`reason`: of the conditions."""
    status |= {"failureReason": DELETE_ERROR, "failureMessage": message}
    text = f"{message}. {hint}"
    say(status, (DELETE_JOB, FALSE, reason, text), (READY, FALSE, reason, text))


# ---- both ----------------------------------------------------------------------------------------------------------


def _forget_failure(status: Json) -> None:
    for name in _FAILURE:
        status.pop(name, None)


def _seconds(time: str | None) -> float:
    return clock.parse(time) if time else 0.0


def retry_wanted(machine: DriverMachine) -> str:
    """Return the value of the retry annotation if it has not been handled yet, else an empty string."""
    said: Mapping[str, str] = machine.metadata.annotations
    value = said.get(RETRY, "")
    return value if value != machine.status.retried else ""
