"""Judges what a store did across crashes, from what its writers and watchers saw.

The driver feeds it records in the order they happened. A *change* is a write with its revision. It is a *fact* from
the moment anyone was told of it: acknowledged, delivered to a watcher, or found after a restart. Then:

- no revision stands for two facts, and no fact was never written;
- a restart finds every fact. As writes reach the disk in the order of revisions, it finds exactly the attempts up to
  its revision, but for those that failed: any other state is a loss, a resurrection or half a batch;
- a watcher receives each fact of its topic once and in order, from where it first listed to where it says it is,
  across all its reconnects.

The checker keeps going after a problem and lists them all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

Key = tuple[str, str, str]

ON_RESTART = "found on restart"


class Change(NamedTuple):
    revision: int
    type: str
    key: Key
    token: str  # tells this write's value from any other's


class Held(NamedTuple):
    """An object as a list shows it."""

    revision: int
    key: Key
    token: str


class Attempted(msgspec.Struct, tag=True):
    change: Change
    alone: bool = True  # nothing else was on its way


class Acknowledged(msgspec.Struct, tag=True):
    change: Change


class Failed(msgspec.Struct, tag=True):
    """The writer was told that the disk refused the write."""

    change: Change


class Started(msgspec.Struct, tag=True):
    revision: int
    state: list[Held]


class Watching(msgspec.Struct, tag=True):
    watcher: str
    since: int


class Seen(msgspec.Struct, tag=True):
    watcher: str
    changes: list[Change]


class Bookmark(msgspec.Struct, tag=True):
    watcher: str
    revision: int


class Relisted(msgspec.Struct, tag=True):
    """The watcher was told its revision is compacted, and listed anew."""

    watcher: str
    revision: int
    state: list[Held]


Record = Attempted | Acknowledged | Failed | Started | Watching | Seen | Bookmark | Relisted


class WatcherLog:
    """What one watcher was given: stretches between lists, each without gap if the store is right."""

    def __init__(self, table: str, namespace: str) -> None:
        self.table = table
        self.namespace = namespace
        self.position = 0
        self.stretches: list[tuple[int, int]] = [(0, 0)]
        self.delivered: set[int] = set()

    def concerns(self, key: Key) -> bool:
        return key[0] == self.table and self.namespace in ("", key[1])

    def advance(self, revision: int) -> None:
        self.position = revision
        self.stretches[-1] = (self.stretches[-1][0], revision)

    def start_over(self, revision: int) -> None:
        self.position = revision
        self.stretches.append((revision, revision))


class Checker:
    def __init__(self, watchers: dict[str, WatcherLog]) -> None:
        self.watchers = watchers
        self.problems: list[str] = []
        self.counts: dict[str, int] = defaultdict(int)
        self._attempts: dict[int, Change] = {}  # of the current life of the store, by revision
        self._facts: dict[int, Change] = {}
        self._together: list[list[int]] = []  # the attempts' revisions, parted where nothing was on its way
        self._void: dict[int, list[int]] = {}  # failed attempts of this life, and what was on its way with each

    def positions(self) -> dict[str, int]:
        """Where each watcher has to resume."""
        return {name: log.position for name, log in self.watchers.items()}

    def take(self, record: Record) -> None:
        self.counts[type(record).__name__] += 1
        match record:
            case Attempted(change, alone):
                self._attempt(change, alone)
            case Acknowledged(change):
                self._learn(change, "acknowledged")
            case Failed(change):
                self._fail(change)
            case Started(revision, state):
                self._restart(revision, state)
            case Watching(watcher, since):
                self._watching(watcher, since)
            case Seen(watcher, changes):
                self._seen(watcher, changes)
            case Bookmark(watcher, revision):
                self._bookmark(watcher, revision)
            case Relisted(watcher, revision, state):
                self._relisted(watcher, revision, state)

    def finish(self) -> list[str]:
        """The gaps, which show only when all facts are known; then everything found."""
        for name, log in self.watchers.items():
            for start, end in log.stretches:
                missed = [
                    fact.revision
                    for fact in self._facts.values()
                    if start < fact.revision <= end and log.concerns(fact.key) and fact.revision not in log.delivered
                ]
                if missed:
                    self._complain(f"watcher {name} missed {missed} between {start} and {end}")
        return self.problems

    def _attempt(self, change: Change, alone: bool) -> None:
        known = self._facts.get(change.revision) or self._attempts.get(change.revision)
        if known is not None:
            self._complain(f"revision {change.revision} given again: {known}, then {change}")
        self._attempts[change.revision] = change
        if alone or not self._together:
            self._together.append([])
        self._together[-1].append(change.revision)

    def _fail(self, change: Change) -> None:
        """A failure voids all writes on their way. They may still be found if the next restart finds nothing newer:
        the disk may have kept what it said it had not. Once a later write is on disk, they are gone for good. Writers
        hear of the failure one after another, and one may write anew before another has heard: that write is alone."""
        if change.revision in self._facts:
            self._complain(f"known to clients and then failed: {change}")
        self._void[change.revision] = next(each for each in reversed(self._together) if change.revision in each)

    def _is_superseded(self, attempt: Change, revision: int) -> bool:
        along = self._void.get(attempt.revision)
        return along is not None and max(along) < revision

    def _learn(self, change: Change, how: str) -> None:
        known = self._facts.get(change.revision)
        if known is not None:
            if known != change:
                self._complain(f"revision {change.revision} stands for {known} and, {how}, for {change}")
            return
        if change.revision in self._void and how != ON_RESTART:
            self._complain(f"failed and then {how}: {change}")
        if self._attempts.get(change.revision) != change:
            self._complain(f"{how} but never written: {change}")
        self._facts[change.revision] = change

    def _restart(self, revision: int, state: list[Held]) -> None:
        newest = max(self._facts, default=0)
        if revision < newest:
            self._complain(f"restarted at revision {revision}, but {newest} was known to clients")
        for attempt in self._attempts.values():
            if self._is_superseded(attempt, revision):
                self.counts["void"] += 1
            elif attempt.revision <= revision:
                if attempt.revision not in self._facts:
                    self.counts["survived unacknowledged"] += 1
                self._learn(attempt, ON_RESTART)
            else:
                self.counts["lost unacknowledged"] += 1
        self._attempts, self._together, self._void = {}, [], {}
        self._compare("the restart", state, self._replay(revision))

    def _watching(self, watcher: str, since: int) -> None:
        if since != self.watchers[watcher].position:
            self._complain(f"watcher {watcher} resumed at {since}, not at {self.watchers[watcher].position}")

    def _seen(self, watcher: str, changes: list[Change]) -> None:
        log = self.watchers[watcher]
        for change in changes:
            if change.revision <= log.position:
                again = "again" if change.revision in log.delivered else "out of order"
                self._complain(f"watcher {watcher} at {log.position} got {change.revision} {again}")
            if not log.concerns(change.key):
                self._complain(f"watcher {watcher} got a stranger: {change}")
            self._learn(change, f"seen by {watcher}")
            log.delivered.add(change.revision)
            log.advance(max(log.position, change.revision))
            self.counts["events"] += 1

    def _bookmark(self, watcher: str, revision: int) -> None:
        log = self.watchers[watcher]
        if revision < log.position:
            self._complain(f"watcher {watcher} at {log.position} got bookmark {revision}")
        log.advance(max(log.position, revision))

    def _relisted(self, watcher: str, revision: int, state: list[Held]) -> None:
        log = self.watchers[watcher]
        expected = [held for held in self._replay(revision) if log.concerns(held.key)]
        self._compare(f"the list of watcher {watcher}", state, expected)
        log.start_over(revision)

    def _replay(self, revision: int) -> list[Held]:
        held: dict[Key, Held] = {}
        for number in sorted(self._facts):
            fact = self._facts[number]
            if number > revision:
                break
            if fact.type == "DELETED":
                held.pop(fact.key, None)
            else:
                held[fact.key] = Held(fact.revision, fact.key, fact.token)
        return list(held.values())

    def _compare(self, where: str, found: Iterable[Held], expected: Iterable[Held]) -> None:
        found_set, expected_set = set(found), set(expected)
        if lost := expected_set - found_set:
            self._complain(f"{where} lacks {sorted(lost)}")
        if strange := found_set - expected_set:
            self._complain(f"{where} has {sorted(strange)}, which should not be there")

    def _complain(self, problem: str) -> None:
        self.problems.append(problem)
