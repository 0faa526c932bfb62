"""Context of the running reconcile: controller, object, id and the step in progress.

The controller sets `current` before it calls a reconcile, and a step sets `current_step` while it acts. Both are
ContextVars, so each asyncio task has its own values and concurrent reconciles never mix. The log adds them to every
line (`remuda.runtime.log_format`); the ledger books writes by them. Background tasks start without them: they outlive
the reconcile that happened to start them.
"""

from __future__ import annotations

from contextvars import Context, ContextVar, copy_context

import msgspec

from remuda.kube.objects import Key
from remuda.runtime import tracing


class CurrentReconcile(msgspec.Struct, frozen=True):
    """Reconcile that this code runs in; the ledger and log lines refer to it."""

    controller: str
    kind: str
    key: Key
    id: str = ""


current: ContextVar[CurrentReconcile | None] = ContextVar("reconcile", default=None)
# Name of the step in progress, while INFO lines are enabled. After a failed step it stays set until a step succeeds or
# the reconcile ends, so that the line which reports the failure names the step.
current_step: ContextVar[str] = ContextVar("step", default="")
# Writes of the step in progress, as text for its log line. Empty while INFO lines are disabled.
step_writes: ContextVar[tuple[str, ...]] = ContextVar("step_writes", default=())


def detached() -> Context:
    """Return a copy of the caller's context that belongs to no reconcile."""
    context = copy_context()
    if current.get() is not None or current_step.get():
        context.run(_clear)
    return context


def _clear() -> None:
    current.set(None)
    current_step.set("")
    step_writes.set(())
    tracing.leave()
