"""Main loop of the agent: one thread follows the Secret and decides; slow work runs in other threads.

Everything arrives as an event, one at a time. The loop works on the Secret as it was last read, with unwritten results
applied to it. So retries, probes and periodic instructions continue while the server is unreachable. The journal
records a run of a plan before it begins and after it has ended. A newer plan waits for the run of the older one (or
ends it, if so configured), but its probes and periodic instructions do not wait.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from remuda.agent import apply, formats, instructions, interlock, log, rules
from remuda.agent.background import Periodic, Probing
from remuda.agent.channel import Channel, PlanRevision
from remuda.agent.config import Config
from remuda.agent.journal import Journal, Run
from remuda.agent.kube import Api, PlanSecret
from remuda.agent.plan import Plan, PlanError, parse

_LONGEST_REST = 60.0
_INTERLOCK_SECONDS = 1.0
_STOP_SECONDS = 10.0
_FINAL_WRITE_SECONDS = 2.0


class _Application(NamedTuple):
    """Run of a plan in progress."""

    basis: PlanRevision
    run: Run
    began: float
    stop: threading.Event
    thread: threading.Thread


class Follower:
    def __init__(self, config: Config, connect: Callable[[], Api]) -> None:
        self._config = config
        self._journal = Journal(config.journal_file)
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._channel = Channel(
            connect, lambda secret: self._post(self._on_secret, secret), lambda: self._post(self._on_gone)
        )
        self._stop = threading.Event()
        self._wake: list[float] = []  # delays in seconds of the current pass
        self._exchange: Callable[[], None] | None = None  # replaces this program as soon as nothing runs

        self._secret: PlanSecret | None = None
        self._basis: PlanRevision | None = None
        self._results: dict[str, bytes] = {}  # not yet in the Secret
        self._written: dict[str, bytes] = {}  # the results that were passed to the channel
        self._plan: Plan | None = None
        self._unreadable = ""
        self._records: formats.Json | None = None  # of periodic instructions; None: as the Secret has them
        # The records as last written to the Secret, before outputs were shortened.
        self._reported: formats.Json | None = None

        self._application: _Application | None = None
        self._periodic = Periodic(config, self._stop, lambda *found: self._post(self._on_periodic, *found))
        self._probing = Probing(config, self._stop, lambda *found: self._post(self._on_probed, *found))

    # From other threads

    def stop(self) -> None:
        self._stop.set()
        self._post(lambda: None)

    def exchange(self, act: Callable[[], None]) -> None:
        """Call `act`, which does not return, as soon as nothing is running."""
        self._post(self._on_exchange, act)

    def _post(self, handler: Callable[..., None], *arguments: Any) -> None:
        self._events.put(lambda: handler(*arguments))

    # The loop

    def follow(self) -> None:
        self._channel.start()
        while not self._stop.is_set():
            event: Callable[[], None] | None
            try:
                event = self._events.get(timeout=min([_LONGEST_REST, *self._wake]))
            except queue.Empty:
                event = None
            self._wake = []
            try:
                if event is not None:
                    event()
                self._pass()
            except Exception as error:  # a full disk, or a bug: log it and retry
                log.error(f"cannot follow the plan: {type(error).__name__}: {error}; retrying")
                self._wake = [rules.PROBE_SECONDS]
        self._end()

    def _end(self) -> None:
        if self._application is not None:
            self._application.stop.set()
        until = time.monotonic() + _STOP_SECONDS
        self._periodic.join(until)
        if self._application is not None:
            self._application.thread.join(max(0.0, until - time.monotonic()))
        self._channel.stop(_FINAL_WRITE_SECONDS)

    def _pass(self) -> None:
        if self._secret is not None and self._basis is not None and rules.PLAN in self._secret.data:
            self._follow_plan()
            if self._results != self._written:
                self._written = dict(self._results)
                self._channel.write(self._basis, self._results)
        # Never replace the program during a run: nobody would read the output and the end of its commands.
        if self._exchange is not None and self._application is None and not self._periodic.busy:
            act, self._exchange = self._exchange, None
            act()

    def _follow_plan(self) -> None:
        assert self._basis is not None
        if self._plan is None:
            self._report_unreadable()
            return
        if not self._apply(self._plan):
            records = self._reported_records() if self._records is None else self._records
            self._wake_in(self._periodic.run_due(self._plan, self._basis, records))
        self._wake_in(self._probing.look(self._plan.probes))

    def _wake_in(self, seconds: float | None) -> None:
        if seconds is not None:
            self._wake.append(seconds)

    # -- events

    def _on_secret(self, secret: PlanSecret) -> None:
        basis = PlanRevision.of(secret)
        if self._secret is not None and secret.uid != self._secret.uid:
            log.info("the plan Secret was recreated")
        if basis != self._basis:
            self._begin(basis, secret.data)
        self._secret = secret
        if rules.is_superseded(secret.data, self._results):
            kept = (rules.PROBES, rules.PERIODIC_OUTPUT)
            self._results = {key: value for key, value in self._results.items() if key in kept}
        self._results = {key: value for key, value in self._results.items() if secret.data.get(key) != value}
        # The channel still has these results, and writes them based on the new version of the Secret.
        self._written = dict(self._results)
        self._probing.period = rules.probe_period(secret.data, self._probing.period)

    def _begin(self, basis: PlanRevision, data: Mapping[str, bytes]) -> None:
        """Begin with another plan or another Secret."""
        self._basis, self._results = basis, {}
        self._records = self._reported = None
        self._periodic.all_due = False
        self._probing.anew(delayed=False)
        self._plan, self._unreadable = None, ""
        if rules.PLAN not in data:
            return
        log.info(f"received plan {basis.checksum[:12]}")
        try:
            self._plan = parse(data[rules.PLAN])
        except PlanError as error:
            self._unreadable = str(error)
            log.error(f"plan {basis.checksum[:12]}: {error}")

    def _on_gone(self) -> None:
        if self._secret is not None:
            log.warning("the plan Secret was deleted; its plan is no longer followed")
        self._secret = self._basis = self._plan = None
        self._results, self._written = {}, {}

    def _on_exchange(self, act: Callable[[], None]) -> None:
        self._exchange = act

    # One-time instructions

    def _view(self) -> dict[str, bytes]:
        """Return the data of the Secret as it will be when all results are written."""
        assert self._secret is not None
        return {**self._secret.data, **self._results}

    def _report_unreadable(self) -> None:
        """Report an invalid plan as the failure of its only attempt: it is not retried."""
        view = self._view()
        if self._results.get(rules.STATE) == rules.IN_PROGRESS.encode():
            return
        verdict = rules.verdict(view, time.time())
        if verdict.claim:
            self._results.update(rules.claimed(view))
        elif verdict.apply and (view.get(rules.STATE) or verdict.attempt == 1):
            self._results.update(rules.failed(view, {}, time.time(), self._unreadable))

    def _apply(self, plan: Plan) -> bool:
        """Start the one-time instructions if they are due; return whether they run or are about to."""
        assert self._basis is not None
        if self._results.get(rules.STATE) == rules.IN_PROGRESS.encode():
            return True  # it starts when the server has acknowledged in-progress
        running = self._application
        if running is not None:
            newer = running.basis != self._basis
            if newer and self._config.supersede:
                running.stop.set()
            elif newer:
                log.once(f"plan {self._basis.checksum[:12]} waits for the run of {running.basis.checksum[:12]} to end")
            return not newer
        view = self._view()
        verdict = rules.verdict(view, time.time())
        if verdict.claim:
            self._results.update(rules.claimed(view))
            self._probing.later()
            return True
        if not verdict.apply:
            self._wake_in(verdict.seconds)
            self._results.update(rules.settled(view))
            return False
        run = Run(self._basis.uid, self._basis.checksum, verdict.attempt_id)
        known = self._journal.results(run)
        if known is not None:
            log.info(
                f"plan {self._basis.checksum[:12]}: {verdict.attempt_id} had already finished; reporting its result"
            )
            self._results.update(known)
            return False
        wait = interlock.seconds_to_wait(self._config.interlock_directory)
        if wait > 0:
            log.once(f"a restart of this agent is pending; waiting up to {wait:.0f} s before the next plan")
            self._wake.append(min(wait, _INTERLOCK_SECONDS))
            return True
        self._start(plan, view[rules.PLAN], run, verdict.attempt)
        return True

    def _start(self, plan: Plan, content: bytes, run: Run, attempt: int) -> None:
        assert self._basis is not None
        log.info(f"plan {run.checksum[:12]}: starting {run.attempt}")
        stop = threading.Event()
        thread = threading.Thread(
            target=self._carry_out, args=(plan, content, run, attempt, stop), name="apply", daemon=True
        )
        self._application = _Application(self._basis, run, time.time(), stop, thread)
        self._probing.later()
        thread.start()

    def _carry_out(self, plan: Plan, content: bytes, run: Run, attempt: int, stop: threading.Event) -> None:
        outcome: apply.Outcome | None
        try:
            # Raises if the disk is full. A run that cannot be recorded does not begin.
            self._journal.started(run)
            outcome = apply.carry_out(plan, content, run.checksum, attempt, self._config, stop)
        except instructions.Stopped:
            outcome = None
        except Exception as error:
            outcome = apply.Outcome({}, f"cannot apply the plan: {error}")
        self._post(self._on_applied, outcome)

    def _on_applied(self, outcome: apply.Outcome | None) -> None:
        done, self._application = self._application, None
        assert done is not None
        short = done.basis.checksum[:12]
        if outcome is None:
            log.info(f"plan {short}: {done.run.attempt} was stopped before it finished")
            return
        current = done.basis == self._basis
        if current:
            self._record(done, outcome)
        if outcome.failure:
            log.error(f"plan {short}: {done.run.attempt} failed: {outcome.failure}")
        else:
            log.info(f"plan {short}: {done.run.attempt} succeeded")
        if not current:
            log.info(f"plan {short} has been replaced; its result is not reported")
            return
        self._periodic.all_due = True
        self._probing.anew(delayed=True)

    def _record(self, done: _Application, outcome: apply.Outcome) -> None:
        view = self._view()
        if outcome.failure:
            results = rules.failed(view, outcome.outputs, done.began, outcome.failure)
        else:
            results = rules.succeeded(view, outcome.outputs, done.began)
            if view.get(rules.PROBES):
                results.update(rules.probe_keys({}))  # components must prove again that they are healthy
        try:
            # Write the journal before the Secret: after a crash in between, the agent reports these results and does
            # not run the plan again.
            self._journal.finished(done.run, results)
        except OSError as error:
            log.error(f"cannot write the journal: {error.strerror}; a restart may run this plan again")
        self._results.update(results)

    # Periodic instructions and probes

    def _on_periodic(self, basis: PlanRevision, records: formats.Json | None) -> None:
        self._periodic.ended(basis, records)
        if basis == self._basis and records is not None:
            self._records = records
            if rules.is_news(self._reported_records(), records, time.time()):
                self._reported = records
                self._results.update(rules.periodic(self._view(), records))

    def _reported_records(self) -> formats.Json:
        written = self._view().get(rules.PERIODIC_OUTPUT, b"")
        return self._reported if self._reported is not None and written else formats.unpack(written)

    def _on_probed(self, number: int, found: Mapping[str, bool] | None) -> None:
        if not self._probing.ended(number) or found is None or self._plan is None:
            return
        before = rules.probe_statuses(self._view())
        after = {
            name: rules.probed(before.get(name) or {}, probe, found[name]) for name, probe in self._plan.probes.items()
        }
        if after != before:
            _log_changes(before, after)
            self._results.update(rules.probe_keys(after))


def _log_changes(before: formats.Json, after: formats.Json) -> None:
    for name, status in after.items():
        well = bool(status.get("healthy"))
        if well != bool((before.get(name) or {}).get("healthy")):
            log.info(f"probe {name}: {'healthy' if well else 'unhealthy'}")
