"""A controller: one kind, one queue, one reconcile function, and the events that bring keys into the queue.

A request is only a key; the reconcile reads the objects. At most one reconcile of a key runs at a time. The controller
stores what each key waits for, and since when (`waits`), for diagnosis.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from remuda.kube import clock, random_source
from remuda.kube.errors import Conflict, StatusError
from remuda.kube.objects import Key, Kind, Object
from remuda.runtime import tracing
from remuda.runtime.caches import Informer
from remuda.runtime.informer import Listener
from remuda.runtime.metrics import TERMINAL, Metrics
from remuda.runtime.outcome import Blocked, Outcome, Requeue, Retryable, Terminal
from remuda.runtime.queue import LOW, NORMAL, Backoff, Queue
from remuda.runtime.reconcile_context import CurrentReconcile, current, current_step
from remuda.runtime.tasks import Tasks

if TYPE_CHECKING:
    from remuda.runtime.ledger import Ledger

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
Reconcile = Callable[[Key], Awaitable[Outcome]]

RECONCILE_SECONDS = 60.0
INTERVAL_SECONDS = 0.1  # between two runs of one key: changes in between are handled together
SECOND_LOOK_SECONDS = 10.0  # after a run's own write: one more run, to verify
SETTLE_SECONDS = 1.0  # after a change of objects that are only counted: many of them change together
_FORGIVEN_CONFLICTS = 3  # in a row: another writer was faster, which is harmless
_LOUD_CONFLICTS = 10  # in a row: two writers fight over the object, which is logged
_FAILURES = ("error", TERMINAL)
_TIME = "Time"  # reason of keys that wait for a time, not for an object
_ID_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels and no look-alikes: ids form no words, and can be read aloud


class BlockedKey(msgspec.Struct, frozen=True):
    """Reason why a key is blocked, as first reported, and the time since when."""

    blocked: Blocked
    since: float


class Controller:
    def __init__(
        self,
        name: str,
        kind: Kind[Any],
        reconcile: Reconcile,
        *,
        concurrency: int,
        interval: float,
        metrics: Metrics,
        ledger: Ledger,
        backoff: Backoff | None = None,
        longest_settling: float = math.inf,
    ) -> None:
        self.name = name
        self._longest_settling = longest_settling
        self.kind = kind
        self.waits: dict[Key, BlockedKey] = {}
        self._reconcile = reconcile
        self._metrics = metrics.controller(name)
        self._queue: Queue[Key] = Queue(
            self._begin,
            workers=concurrency,
            interval=interval,
            backoff=backoff,
            waited=self._metrics.queue_seconds.observe,
        )
        self._metrics.follow(self._queue)
        self._tasks = Tasks()
        self._ledger = ledger
        self._failing: set[Key] = set()  # keys in back-off after an error; their recovery is logged
        # Ids are a random prefix and a count: one draw per controller, because a draw per reconcile would cost more
        # than the rest of the bookkeeping, and a draw per logged line would make a seeded run depend on the log level.
        self._id_prefix = random_source.letters(_ID_LETTERS, 4)
        self._ids = itertools.count(1)
        self._watched: WeakKeyDictionary[Informer[Any], dict[str, Listener[Any]]] = WeakKeyDictionary()

    def watch(
        self,
        informer: Informer[T],
        to_keys: Callable[[T], Iterable[Key]],
        name: str = "",
        *,
        settle: float = 0.0,
        facts: Callable[[T], object] | None = None,
    ) -> None:
        """Enqueue the keys that an object maps to, before and after each change; `settle` seconds after the first of
        many changes. A reconcile's own write enqueues its own key too, but later; its own deletion at once. A second
        call with the same informer and `name` does nothing.
        `facts`: the parts of the object that concern those keys; a change of other parts enqueues nothing."""
        listeners = self._watched.setdefault(informer, {})
        if name in listeners:
            return

        def changed(before: T | None, after: T | None, initial: bool) -> None:
            if facts is not None and before is not None and after is not None and facts(before) == facts(after):
                return
            # An object that moved to another owner concerns the old owner too.
            keys = dict.fromkeys(to_keys(before) if before is not None else ())  # ordered: simulations repeat
            if after is not None:
                keys.update(dict.fromkeys(to_keys(after)))
            running = current.get()
            for key in keys:
                # The run in progress has decided with its own write in mind: reconciling the key at once would find
                # nothing to do.
                own = running is not None and running.key == key and running.controller == self.name
                wait = SECOND_LOOK_SECONDS if own else settle
                if after is None:
                    wait = 0.0 if own else min(settle, SETTLE_SECONDS)  # a controller may be waiting for it
                if wait and not initial:
                    self.enqueue(key, min(wait, self._longest_settling))
                else:
                    self._add(key, LOW if initial else NORMAL)

        listeners[name] = changed
        informer.listen(changed)

    def enqueue(self, key: Key, after: float = 0.0) -> None:
        if after > 0:
            self._metrics.adds.inc()
            self._queue.add_after(key, after)
        else:
            self._add(key, NORMAL)

    def _add(self, key: Key, priority: int) -> None:
        self._metrics.adds.inc()
        self._queue.add(key, priority)

    @property
    def backlog(self) -> int:
        """Return the number of keys that are in progress or due."""
        return self._queue.depth + self._queue.working

    @property
    def idle(self) -> bool:
        return self._queue.idle

    def start(self) -> None:
        self._queue.open()

    async def stop(self, seconds: float) -> None:
        """Accept no further keys, and let running reconciles finish within `seconds`."""
        for informer, listeners in self._watched.items():
            for listener in listeners.values():
                # Before the queue closes: an informer outlives its controllers, and would keep calling a stopped one.
                informer.unlisten(listener)
        self._queue.close()
        await self._tasks.finish(seconds)
        await self._tasks.close()

    def _begin(self, key: Key) -> None:
        self._tasks.spawn(f"{self.name} {key}", self._traced(key))

    async def _traced(self, key: Key) -> None:
        with tracing.span("reconcile", {"remuda.controller": self.name, **_object_of(self.kind.name, key)}):
            await self._run(key)

    async def _run(self, key: Key) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        running = CurrentReconcile(self.name, self.kind.name, key, f"{self._id_prefix}-{next(self._ids)}")
        current.set(running)
        result = "error"
        try:
            async with asyncio.timeout(RECONCILE_SECONDS):
                result = self._finished(key, await self._reconcile(key))
        except Conflict as error:
            result = self._conflict(key, error)
        except Terminal as error:
            result = self._terminal(key, error)
        except Exception as error:
            result = self._failed(key, error)
        finally:
            self._metrics.reconciled(result, loop.time() - started)
            tracing.describe({"remuda.reconcile_id": running.id, "remuda.result": result}, failed=result in _FAILURES)
            self._ledger.reconciled(self.name, self.kind.name, key)
            self._queue.done(key)

    def _finished(self, key: Key, outcome: Outcome) -> str:
        self._queue.forget(key)
        # An error inside a step that the reconcile caught must not name the step in the log line of the outcome.
        current_step.set("")
        recovered = key in self._failing
        self._failing.discard(key)
        if isinstance(outcome, Blocked):
            self._waits_for(key, outcome, recovered=recovered)
            after = outcome.check_after
        elif isinstance(outcome, Requeue):
            self._waits_until(key, outcome, recovered)
            after = outcome.after_seconds
        else:
            self._waits_for_nothing(key, recovered)
            after = None
        if after is None:
            return "success"
        self._queue.add_after(key, after)
        return "requeue_after"

    def _waits_until(self, key: Key, again: Requeue, recovered: bool) -> None:
        if again.why:
            blocked = Blocked(_TIME, f"{self.kind.name} {key}", again.why, again.after_seconds)
            self._waits_for(key, blocked, recovered=recovered)
        else:
            self._waits_for_nothing(key, recovered)

    def _waits_for(self, key: Key, blocked: Blocked, *, recovered: bool = False) -> None:
        if self._keep_wait(key, blocked) or recovered:
            named = blocked.on in blocked.message or blocked.reason == _TIME
            on = "" if named else f" for {blocked.on}"
            log.log(_outcome_level(blocked), "waiting%s: %s (%s)", on, blocked.message, blocked.reason)

    def _keep_wait(self, key: Key, blocked: Blocked) -> bool:
        """Record what the key waits for. Return whether that differs from what it waited for before."""
        before = self.waits.get(key)
        # A new message for the same object, such as another count, does not restart `since`.
        if before is None or (before.blocked.reason, before.blocked.on) != (blocked.reason, blocked.on):
            self.waits[key] = BlockedKey(blocked, clock.time())
            return True
        self.waits[key] = BlockedKey(blocked, before.since)
        return before.blocked.message != blocked.message

    def _waits_for_nothing(self, key: Key, recovered: bool) -> None:
        waited = self.waits.pop(key, None)
        if recovered:
            log.info("succeeded after a failed attempt")
        elif waited is not None:
            on = "" if waited.blocked.reason == _TIME else f", no longer waiting for {waited.blocked.on}"
            log.log(_outcome_level(waited.blocked), "done%s", on)

    def _terminal(self, key: Key, error: Terminal) -> str:
        self._queue.forget(key)
        self._failing.discard(key)
        self._keep_wait(key, Blocked("Terminal", f"{self.kind.name} {key}", str(error)))
        log.warning("reconcile failed, no retry until the object changes: %s", error)
        return TERMINAL

    def _conflict(self, key: Key, error: Conflict) -> str:
        """Requeue a key after a conflict without logging. Many conflicts in a row slow it down, and are logged."""
        self._queue.failed(key, forgiven=_FORGIVEN_CONFLICTS)
        if self._queue.failures(key) % _LOUD_CONFLICTS == 0:
            log.warning(
                "%d write conflicts in a row, still retrying; the last one: %s", self._queue.failures(key), error
            )
        return "requeue"

    def _failed(self, key: Key, error: Exception) -> str:
        delay = self._queue.failed(key)
        self._metrics.retries.inc()
        self._failing.add(key)
        why = str(error) or type(error).__name__
        log.warning("reconcile failed: %s; retry in %.1f s", why, delay, exc_info=_unforeseen(error))
        return "error"


def _outcome_level(blocked: Blocked) -> int:
    """Return the log level of an outcome. Timed waits are DEBUG: most of them only delay the next status, and end
    within seconds.
    """
    return logging.DEBUG if blocked.reason == _TIME else logging.INFO


def _unforeseen(error: Exception) -> Exception | None:
    """Return an unexpected error, for a traceback in the log; None for expected errors, whose message is enough."""
    return None if isinstance(error, StatusError | Retryable | TimeoutError | OSError) else error


def _object_of(kind: str, key: Key) -> tracing.Attributes:
    return {"k8s.object.kind": kind, "k8s.namespace.name": key.namespace, "k8s.object.name": key.name}
