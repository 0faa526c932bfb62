"""Failure budget of a machine and of its pool: limits how often a server is requested. Pure.

A failed attempt is retried on the same machine with growing delays; after so many failures in a row a person has to
intervene. When the last attempts of a whole pool have failed, the cause is not a single machine: then only one of its
machines tries at a time, and the others wait for the result (a half-open circuit). So a failing cloud receives fewer
and fewer requests, and never for more servers than there are machines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

import msgspec

RETRY = "remuda.dev/retry"  # annotation: any new value begins the budget anew


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    first_seconds: float = 10.0  # the wait after the first failure; doubled with each further one
    most_seconds: float = 300.0
    machine_failures: int = 5  # in a row: then the machine is stalled
    pool_failures: int = 3  # in a row: then one machine at a time
    history: int = 10  # failures that are kept


class Failure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One attempt that failed, as it stays readable when its machine is gone."""

    time: str
    machine: str
    message: str
    attempt: int = 1
    job: str = ""  # uid: what makes it count once


class Pool(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    failures: int = 0  # attempts of its machines that failed since one succeeded
    last_failure: float = 0.0
    history: Sequence[Failure] = ()  # the oldest first


class FailedAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """Failed attempts of one machine."""

    failures: int = 0  # in a row
    last_failure: float = 0.0
    hopeless: bool = False  # the last one said that it cannot work with these options


class TryNow(msgspec.Struct, frozen=True):
    """Verdict: try now."""


class RetryLater(msgspec.Struct, frozen=True):
    seconds: float | None  # None: until something happens in the pool
    reason: str
    message: str


class Stall(msgspec.Struct, frozen=True):
    """Verdict: no further attempt until a user requests it."""

    reason: str
    message: str


Verdict = TryNow | RetryLater | Stall
TRY_NOW = TryNow()

BACKING_OFF = "BackingOff"
POOL_BUSY = "PoolTriesOneAtATime"
POOL_BACKING_OFF = "PoolBackingOff"
BAD_OPTIONS = "BadOptions"
BAD_BOOTSTRAP_FORMAT = "BadBootstrapFormat"
TOO_MANY_FAILURES = "TooManyFailures"


def back_off(rules: Rules, failures: int, salt: str) -> float:
    """Return the seconds to wait after so many failures. `salt` spreads the retries of many machines, and always gives
    the same delay for the same machine, so that repeated calls do not postpone its retry."""
    if failures <= 0:
        return 0.0
    whole = min(rules.first_seconds * 2.0 ** min(failures - 1, 30), rules.most_seconds)
    draw = int.from_bytes(hashlib.sha256(f"{salt} {failures}".encode()).digest()[:4], "big") / 2**32
    return whole * (0.8 + 0.2 * draw)


def judge(rules: Rules, machine: FailedAttempts, pool: Pool, trying: Collection[str], now: float, salt: str) -> Verdict:
    """Return whether a machine may request its server now. `trying`: other machines of its pool that are trying."""
    if stall := stalled(rules, machine):
        return stall
    own = rest(rules, machine, now, salt)
    if own > 0:
        which = f"{attempt(rules, machine.failures)} failed"
        return RetryLater(own, BACKING_OFF, f"{which}; the controller retries {_within(rules, machine.failures)}")
    if pool.failures < rules.pool_failures:
        return TRY_NOW
    said = f"the last {pool.failures} attempts of the pool failed"
    if trying:
        return RetryLater(
            None, POOL_BUSY, f"{said}, so only one machine is tried at a time; waiting for machine {min(trying)}"
        )
    left = _left(pool.last_failure, back_off(rules, _pool_steps(rules, pool), "pool"), now)
    if left > 0:
        return RetryLater(
            left,
            POOL_BACKING_OFF,
            f"{said}; the controller retries one machine {_within(rules, _pool_steps(rules, pool))}",
        )
    return TRY_NOW


def rest(rules: Rules, machine: FailedAttempts, now: float, salt: str) -> float:
    """Return the seconds until the next attempt; zero or less: now."""
    return _left(machine.last_failure, back_off(rules, machine.failures, salt), now)


def stalled(rules: Rules, machine: FailedAttempts) -> Stall | None:
    if machine.hopeless:
        return Stall(BAD_OPTIONS, "the driver rejects these options or credentials")
    if machine.failures >= rules.machine_failures:
        return Stall(TOO_MANY_FAILURES, f"{machine.failures} consecutive attempts failed")
    return None


def attempt(rules: Rules, number: int) -> str:
    """Name an attempt; one that somebody asked for may be above the limit."""
    return f"attempt {number} of {rules.machine_failures}" if number <= rules.machine_failures else f"attempt {number}"


def failed(rules: Rules, pool: Pool, failure: Failure, now: float) -> Pool:
    """Return the pool with one more failure; unchanged if the Job has been counted."""
    if any(one.job == failure.job for one in pool.history):
        return pool
    history = (*pool.history, failure)[-rules.history :]
    return Pool(failures=pool.failures + 1, last_failure=now, history=history)


def succeeded(pool: Pool) -> Pool:
    """Return the pool with its failure count reset; the history stays readable."""
    return msgspec.structs.replace(pool, failures=0, last_failure=0.0)


def _pool_steps(rules: Rules, pool: Pool) -> int:
    return pool.failures - rules.pool_failures + 1


def _left(since: float, seconds: float, now: float) -> float:
    """Return the rest of a delay; at most the whole delay, even if the clock was set back."""
    return min(seconds, since + seconds - now)


def _within(rules: Rules, failures: int) -> str:
    """Return the delay as text. It does not count down, so that reporting the same state again writes nothing."""
    seconds = min(rules.first_seconds * 2.0 ** min(failures - 1, 30), rules.most_seconds)
    return f"within {seconds:.0f} s of the last failure"
