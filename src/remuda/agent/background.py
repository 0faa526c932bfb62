"""Background threads beside a plan run: rounds of probes, and periodic instructions.

Both report their results to `follow`, which evaluates them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from remuda.agent import apply, formats, instructions, log, probes, rules
from remuda.agent.channel import PlanRevision
from remuda.agent.config import Config
from remuda.agent.plan import Plan, Probe

Records = formats.Json
Found = Mapping[str, bool]

_AGAIN_SECONDS = 5.0  # after instructions could not be started


class Probing:
    """Rounds of probes, one at a time, each a period after the one before it."""

    def __init__(self, config: Config, stop: threading.Event, tell: Callable[[int, Found | None], None]) -> None:
        self._host = probes.ProbedHost(config.root, config.address)
        self._stop = stop
        self._tell = tell
        self._round = 0
        self._busy = False
        self._delayed = False
        self._next = 0.0
        self.period = rules.PROBE_SECONDS

    def anew(self, *, delayed: bool) -> None:
        """Start a new round at once and ignore the running one: there is another plan, or the plan was applied."""
        self._round += 1
        self._busy = False
        self._delayed = delayed
        self._next = time.monotonic()

    def later(self) -> None:
        self._next = time.monotonic() + self.period

    def look(self, wanted: Mapping[str, Probe]) -> float | None:
        """Start a round if one is due. Otherwise return the seconds until then; None while a round is running."""
        if self._busy or not wanted:
            return None
        left = self._next - time.monotonic()
        if left > 0:
            return left
        self._busy = True
        delayed, self._delayed = self._delayed, False
        threading.Thread(target=self._look, args=(wanted, self._round, delayed), name="probes", daemon=True).start()
        return None

    def _look(self, wanted: Mapping[str, Probe], number: int, delayed: bool) -> None:
        found = None
        try:
            found = probes.look(wanted, self._host, self._stop, delayed=delayed)
        finally:
            self._tell(number, found)

    def ended(self, number: int) -> bool:
        """Record the end of a round and return whether its results still count: a newer round makes them obsolete."""
        # `anew` does not stop the threads of the running round. Their results arrive later.
        if number != self._round:
            return False
        self._busy = False
        self.later()
        return True


class Periodic:
    """Periodic instructions of the plan; a newer plan's do not wait for those of an older one."""

    def __init__(
        self, config: Config, stop: threading.Event, tell: Callable[[PlanRevision, Records | None], None]
    ) -> None:
        self._config = config
        self._stop = stop
        self._tell = tell
        self._of: PlanRevision | None = None  # the plan whose instructions are running
        self._threads: list[threading.Thread] = []  # may include threads of older plans that have not ended
        self.all_due = False  # the plan has just been applied
        self._every = False  # value of `all_due` when the last ones started
        self._not_before = 0.0

    @property
    def busy(self) -> bool:
        return self._of is not None

    def run_due(self, plan: Plan, basis: PlanRevision, records: Records) -> float | None:
        """Start the instructions that are due. Otherwise return the seconds until one is."""
        if basis == self._of or not plan.periodic_instructions:
            return None
        due = 0.0 if self.all_due else apply.seconds_until_due(plan, records, time.time())
        if due is None or due > 0:
            return due
        left = self._not_before - time.monotonic()
        if left > 0:
            return left
        self._every, self.all_due, self._of = self.all_due, False, basis
        given = (plan, records, basis, self._every)
        thread = threading.Thread(target=self._run, args=given, name="periodic", daemon=True)
        self._threads = [*(each for each in self._threads if each.is_alive()), thread]
        thread.start()
        return None

    def _run(self, plan: Plan, records: Records, basis: PlanRevision, every: bool) -> None:
        found: Records | None = None
        try:
            found = apply.run_due(plan, records, basis.checksum, self._config, self._stop, every=every)
        except instructions.Stopped:
            pass
        except Exception as error:
            log.error(f"periodic instructions of plan {basis.checksum[:12]}: {error}")
        self._tell(basis, found)

    def ended(self, basis: PlanRevision, found: Records | None) -> None:
        """Record the end of a run. Without results the instructions could not start, for example because the disk is
        full; they are retried after a pause."""
        if basis != self._of:
            return
        self._of = None
        if found is None:
            self._not_before = time.monotonic() + _AGAIN_SECONDS
            self.all_due = self.all_due or self._every

    def join(self, until: float) -> None:
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
