"""Steps: every action of a controller that changes something has a name, and can be a crash point.

    CREATE_MACHINE = step("machineset.create-machine", "creates the Machine of one replica")

    async with CREATE_MACHINE:
        await client.create(...)

`REMUDA_CRASH_AT=machineset.create-machine` kills the process, as `kill -9` would, right after the act;
`…:before` right before it; `…@3` the third time; of several points separated by commas the first one reached; `*@5` is
the fifth point passed, whichever that is. With `REMUDA_CRASH_ONCE=DIRECTORY`, each point kills only one process: the
process leaves a file there, named after the point, before it dies. Fault tests iterate over `all_steps()`, so that no
step is missed.

A step also checks that this process still leads (`remuda.kube.leadership`).

Each step that has acted is one INFO line: its name, what it does, and the writes it made. Steps are on the hot path:
with INFO disabled, a step pays for one `isEnabledFor` and one look at a ContextVar. Lines from inside a step name the
step only while INFO is enabled; the line that reports its failure always does.
"""

from __future__ import annotations

import logging
import os
import signal
from types import TracebackType

from remuda.kube.leadership import ask_permit
from remuda.runtime import tracing
from remuda.runtime.reconcile_context import current_step, step_writes

log = logging.getLogger(__name__)
_INFO = logging.INFO
_log_enabled = log.isEnabledFor  # bound once: steps are on the hot path

VARIABLE = "REMUDA_CRASH_AT"
ONCE_VARIABLE = "REMUDA_CRASH_ONCE"
_ANY = "*"
CRASHED = "killed by REMUDA_CRASH_AT at"  # the last line on stderr


class Step:
    """One kind of act. Created at import time, once."""

    __slots__ = ("after", "before", "doc", "name", "taken")

    def __init__(self, name: str, doc: str) -> None:
        self.name = name
        self.doc = doc
        self.before = f"{name}:before"
        self.after = f"{name}:after"
        self.taken = 0

    async def __aenter__(self) -> None:
        # A process that lost the Lease must not begin another step, even if it does not know of the loss yet.
        ask_permit()
        if _log_enabled(_INFO):
            current_step.set(self.name)
        tracing.step_begins()
        if _crash is not None:
            _crash.passing(self.before)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tracing.step_ends(self.name, failed=kind is not None)
        if kind is None:
            self.taken += 1
            if current_step.get():
                self._log()
            if _crash is not None:
                _crash.passing(self.after)
        else:
            current_step.set(self.name)  # for the line that reports the failure, at any level
            step_writes.set(())

    def _log(self) -> None:
        if _log_enabled(_INFO):
            current_step.set(self.name)
            written = step_writes.get()
            log.info("%s (%s)" if written else "%s%s", self.doc, ", ".join(written))
        current_step.set("")
        step_writes.set(())

    def __repr__(self) -> str:
        return f"<step {self.name}>"


class CrashPlan:
    """Points at which this process is to crash: it dies at the first one passed often enough, and prints its name."""

    def __init__(self, text: str, once: str = "") -> None:
        self._once = once
        self._left: dict[str, int] = {}
        for entry in text.split(","):
            point, _, times = entry.strip().partition("@")
            exact = point == _ANY or point.endswith((":before", ":after"))
            self._left[point if exact else f"{point}:after"] = int(times or 1)

    def passing(self, point: str) -> None:
        for name in (point, _ANY):
            if name in self._left:
                self._left[name] -= 1
                if self._left[name] == 0 and self._first(point):
                    os.write(2, f"{CRASHED} {point}\n".encode())
                    os.kill(os.getpid(), signal.SIGKILL)

    def _first(self, point: str) -> bool:
        if not self._once:
            return True
        try:
            # O_EXCL: of several processes that reach the point at the same time, one dies.
            os.close(os.open(os.path.join(self._once, point), os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True


_steps: dict[str, Step] = {}
_crash = CrashPlan(os.environ[VARIABLE], os.environ.get(ONCE_VARIABLE, "")) if os.environ.get(VARIABLE) else None


def crash_at(text: str, once: str = "") -> None:
    """Set REMUDA_CRASH_AT and REMUDA_CRASH_ONCE of a process that was forked, not started."""
    global _crash
    _crash = CrashPlan(text, once) if text else None


def note_write(verb: str, plural: str, namespace: str, name: str, subresource: str) -> None:
    """Add a write to the line of the step in progress."""
    if _log_enabled(_INFO) and current_step.get():
        resource = f"{plural}/{subresource}" if subresource else plural
        written = f"{verb} {resource} {namespace}/{name}" if namespace else f"{verb} {resource} {name}"
        step_writes.set((*step_writes.get(), written))


def step(name: str, doc: str) -> Step:
    """Declare a step. Its name is `<controller>.<what-it-does>` and belongs to one place in the code."""
    if name in _steps:
        raise ValueError(f"two steps are called {name}")
    _steps[name] = Step(name, doc)
    return _steps[name]


def all_steps() -> list[Step]:
    """Return every step of the modules imported so far, by name."""
    return [_steps[name] for name in sorted(_steps)]
