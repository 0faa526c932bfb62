"""Channel of the agent to its Secret, with two threads: one watches for changes, the other reads and writes.

One thread makes all reads and writes, one after the other, so the agent never sees an older state than before. A watch
event only causes a read. Results stay pending until the server has stored them, however long it is unreachable. They
are dropped when the Secret has another plan. No error here ends the agent.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from remuda.agent import log, rules, web
from remuda.agent.kube import Api, ApiError, PlanSecret

_LONGEST_PAUSE = 30.0
_FIRST_PAUSE = 0.5
_REPEAT_SECONDS = 300.0


class PlanRevision(NamedTuple):
    """Secret and plan checksum that results belong to."""

    uid: str
    checksum: str

    @classmethod
    def of(cls, secret: PlanSecret) -> PlanRevision:
        return cls(secret.uid, rules.checksum(secret.data.get(rules.PLAN, b"")))


class Pauses:
    """Back-off with full jitter: a random pause below a bound that doubles, so that many agents do not retry at
    once."""

    def __init__(self, first: float = _FIRST_PAUSE, longest: float = _LONGEST_PAUSE) -> None:
        self._first, self._longest = first, longest
        self._bound = first

    def reset(self) -> None:
        self._bound = self._first

    def next(self, retry_after: float | None = None) -> float:
        bound, self._bound = self._bound, min(self._bound * 2, self._longest)
        return (retry_after or 0.0) + random.uniform(0, bound)  # noqa: S311


class FailureLog:
    """Log of one failing operation: repeats the same error only after a while, and logs the recovery."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last_logged: str | None = None
        self._at = 0.0

    def trouble(self, text: str) -> None:
        now = time.monotonic()
        if text != self._last_logged or now > self._at + _REPEAT_SECONDS:
            log.warning(f"{self._what}: {text}; retrying")
            self._last_logged, self._at = text, now

    def well(self) -> None:
        if self._last_logged is not None:
            log.info(f"{self._what}: works again")
            self._last_logged = None


class Channel:
    """Channel to the plan Secret. `seen` is called with each new state of it, `gone` when it does not exist."""

    def __init__(
        self, connect: Callable[[], Api], seen: Callable[[PlanSecret], None], gone: Callable[[], None]
    ) -> None:
        self._connect = connect
        self._seen = seen
        self._gone = gone
        self._changed = threading.Condition()
        self._stale = True  # the Secret must be read
        self._basis: PlanRevision | None = None
        self._pending: dict[str, bytes] = {}
        self._version = ""  # resourceVersion of the Secret as last read or written
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._sync, name="talk", daemon=True),
            threading.Thread(target=self._watch, name="watch", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """Stop the channel after at most `seconds`, in which pending changes can still be written."""
        until = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: not self._pending, max(0.0, until - time.monotonic()))
            self._stopping.set()
            self._changed.notify_all()

    def write(self, basis: PlanRevision, changes: Mapping[str, bytes]) -> None:
        """Write these changes, instead of those that are still pending."""
        with self._changed:
            self._basis, self._pending = basis, dict(changes)
            self._changed.notify_all()

    # Reading and writing

    def _sync(self) -> None:
        pauses, complaints = Pauses(), FailureLog("the plan Secret")
        api: Api | None = None
        secret: PlanSecret | None = None
        while not self._stopping.is_set():
            try:
                api = api or self._connect()
                secret = self._read_or_write(api, secret)
                pauses.reset()
                complaints.well()
            except ApiError as error:
                if _is_missing(error):
                    secret = None
                    self._lost()
                    continue
                if error.code == 409:
                    self._read_again()
                    self._stopping.wait(random.uniform(0, 0.05))  # noqa: S311
                    continue
                if error.code in (413, 422):
                    self._refused(error)
                    continue
                complaints.trouble(str(error))
                self._stopping.wait(pauses.next(error.retry_after))
            except Exception as error:  # no error ends the agent
                complaints.trouble(
                    str(error) if isinstance(error, (web.ServerUnreachable, ValueError)) else repr(error)
                )
                if api is not None:
                    api.close()
                api = None  # servers and authorities may have been added
                self._stopping.wait(pauses.next())
        if api is not None:
            api.close()

    def _read_or_write(self, api: Api, secret: PlanSecret | None) -> PlanSecret | None:
        """Wait for work; then read or write the Secret once."""
        with self._changed:
            self._changed.wait_for(lambda: self._stale or self._pending or self._stopping.is_set())
            if self._stopping.is_set():
                return secret
            # Clear the flag before the read: a change that arrives during the read sets it again.
            stale, self._stale = self._stale, False
        if stale or secret is None:
            try:
                found = api.get()
            except Exception as error:
                # A missing Secret is not polled. The watch reports when it is created.
                if not _is_missing(error):
                    self._read_again()
                raise
            self._accept(found)
            return found
        with self._changed:
            basis, changes = self._basis, dict(self._pending)
        if not changes:
            return secret
        if basis != PlanRevision.of(secret) or rules.is_superseded(secret.data, changes):
            self._drop(changes)
            return secret
        found = api.write(secret, changes)
        self._drop(changes)
        self._accept(found)
        return found

    def _accept(self, found: PlanSecret) -> None:
        if found.version != self._version:
            self._version = found.version
            self._seen(found)

    def _drop(self, changes: Mapping[str, bytes]) -> None:
        with self._changed:
            # Newer values of these keys, queued during the write, stay pending.
            self._pending = {key: value for key, value in self._pending.items() if changes.get(key) != value}
            self._changed.notify_all()

    def _read_again(self) -> None:
        with self._changed:
            self._stale = True
            self._changed.notify_all()

    def _lost(self) -> None:
        with self._changed:
            self._pending, self._version = {}, ""
        self._gone()

    def _refused(self, error: ApiError) -> None:
        """Drop changes that the server will never accept. Outputs are the part that can be too large."""
        with self._changed:
            kept = {key: value for key, value in self._pending.items() if not key.endswith("-output")}
            self._pending = kept if len(kept) < len(self._pending) else {}
        log.error(
            f"the server rejected the results: {error}; " + ("retrying without outputs" if kept else "dropping them")
        )

    # Watching

    def _watch(self) -> None:
        pauses, complaints = Pauses(), FailureLog("the watch of the plan Secret")
        api: Api | None = None
        version = ""
        while not self._stopping.is_set():
            try:
                api = api or self._connect()
                for kind, reached in api.watch(version):
                    version = reached
                    pauses.reset()
                    complaints.well()
                    # An event with the version that was read or written last needs no further read.
                    if kind != "BOOKMARK" and version != self._version:
                        self._read_again()
                self._stopping.wait(random.uniform(0, 0.2))  # noqa: S311
            except ApiError as error:
                if error.code != 410:
                    complaints.trouble(str(error))
                version = ""
                self._stopping.wait(pauses.next(error.retry_after))
            except Exception as error:
                complaints.trouble(
                    str(error) if isinstance(error, (web.ServerUnreachable, ValueError)) else repr(error)
                )
                api, version = None, ""
                self._stopping.wait(pauses.next())


def _is_missing(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.code == 404
