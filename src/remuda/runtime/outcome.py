"""Outcome of a reconcile, as a value: done, requeue after a while, or blocked on something named.

An exception tells whether a retry can help: `Retryable` (and any unexpected exception) goes through the key's back-off,
`Terminal` waits until the object changes. A conflict is neither: another writer was faster, so the key simply runs
again.
"""

from __future__ import annotations

import msgspec

from remuda.runtime import ControllerRuntimeError


class Done(msgspec.Struct, frozen=True):
    """Nothing to do until the next event."""


class Requeue(msgspec.Struct, frozen=True):
    """Requeue after some seconds: time alone changes the result."""

    after_seconds: float
    why: str = ""


class Blocked(msgspec.Struct, frozen=True):
    """Nothing to do until something else changes; an event of that object brings the key back.

    `on` names the object by kind, namespace and name (`DockerMachine default/m-1`). `check_after` requeues the key even
    without an event, if the other object cannot be watched.
    """

    reason: str
    on: str
    message: str
    check_after: float | None = None


Outcome = Done | Requeue | Blocked
DONE = Done()


class Retryable(ControllerRuntimeError):
    """Error that a retry may fix."""


class Terminal(ControllerRuntimeError):
    """Error that no retry can fix until the object changes."""


def soonest(*outcomes: Outcome) -> Outcome:
    """Combine the outcomes of several steps: the earliest requeue, else the first that is blocked."""
    again = [outcome for outcome in outcomes if isinstance(outcome, Requeue)]
    checks = [outcome for outcome in outcomes if isinstance(outcome, Blocked) and outcome.check_after is not None]
    blocked = next((outcome for outcome in outcomes if isinstance(outcome, Blocked)), None)
    earliest = min(
        [outcome.after_seconds for outcome in again] + [check.check_after or 0.0 for check in checks], default=None
    )
    if blocked is None:
        return DONE if earliest is None else min(again, key=lambda outcome: outcome.after_seconds)
    return msgspec.structs.replace(blocked, check_after=earliest)
