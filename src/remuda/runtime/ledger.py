"""Ledger: writes, reconciles and time per phase, for each object of one kind.

`follow` sets the kind (Machines, in Cluster API). A write or reconcile belongs to the followed object **with the same
namespace and name** as the reconciled object, or else as the written object. The objects of a Machine (bootstrap,
infrastructure) have its name, so they count for it. Writes for no followed object count only in the totals, so
`writes_per` is all writes of this process divided by the number of followed objects.

Memory is limited: a number of accounts, of which the least recently used is dropped first, and a number of phases each.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

from remuda.kube import clock
from remuda.kube.client import Target
from remuda.kube.objects import Key, Kind

if TYPE_CHECKING:
    from remuda.runtime.metrics import Metrics
    from remuda.runtime.reconcile_context import CurrentReconcile

_ACCOUNTS = 20_000
_SPANS = 32

BEFORE = "before"  # phase of an account before the first call of `phase`


class Span(msgspec.Struct):
    """Writes and reconciles of an object during one phase. `until` is None while the phase lasts."""

    phase: str
    since: float
    until: float | None = None
    writes: dict[str, int] = {}
    reconciles: dict[str, int] = {}

    def seconds(self, now: float) -> float:
        return (now if self.until is None else self.until) - self.since


class Ledger:
    def __init__(self, metrics: Metrics | None = None, *, most_accounts: int = _ACCOUNTS) -> None:
        self._metrics = metrics
        self._most = most_accounts
        self._kind: Kind[Any] | None = None
        self._accounts: OrderedDict[Key, list[Span]] = OrderedDict()
        self.opened = 0  # accounts ever opened, also those forgotten since
        self.writes = 0
        self.reconciles = 0
        self.writes_by: Counter[tuple[str, str]] = Counter()  # (controller, "verb plural[/subresource]")

    def follow(self, kind: Kind[Any]) -> None:
        """Keep accounts of the objects of this kind."""
        self._kind = kind

    def reconciled(self, controller: str, kind: str, key: Key) -> None:
        self.reconciles += 1
        account = self._account(key, opens=self._kind is not None and kind == self._kind.name)
        if account is not None:
            _count(account[-1].reconciles, controller)

    def wrote(
        self, running: CurrentReconcile | None, verb: str, target: Target, namespace: str, name: str, subresource: str
    ) -> None:
        controller = running.controller if running is not None else ""
        act = f"{verb} {target.plural}/{subresource}" if subresource else f"{verb} {target.plural}"
        self.writes += 1
        self.writes_by[controller, act] += 1
        if self._metrics is not None:
            self._metrics.wrote(controller, verb, target.plural)
        account = self._belongs_to(running, target, Key(namespace, name))
        if account is not None:
            _count(account[-1].writes, act)

    def _belongs_to(self, running: CurrentReconcile | None, target: Target, written: Key) -> list[Span] | None:
        if running is not None and (account := self._account(running.key)) is not None:
            return account
        return self._account(written, opens=self._kind is not None and target == self._kind.target)

    def phase(self, key: Key, phase: str) -> None:
        """Record the phase of a followed object; repeated calls do no harm."""
        account = self._account(key, opens=True)
        if account is None or account[-1].phase == phase:
            return
        now = clock.time()
        last = account[-1]
        last.until = now
        if self._metrics is not None and self._kind is not None:
            self._metrics.phase_ended(self._kind.name, last.phase, last.seconds(now))
        account.append(Span(phase, now))
        if len(account) > _SPANS:
            del account[0]

    def timeline(self, key: Key) -> list[Span]:
        """Return the phases of a followed object in order, with their costs; empty if the object is unknown."""
        return [
            msgspec.structs.replace(span, writes=dict(span.writes), reconciles=dict(span.reconciles))
            for span in self._accounts.get(key, ())
        ]

    def writes_of(self, key: Key) -> int:
        """Return the writes for one followed object."""
        return sum(sum(span.writes.values()) for span in self._accounts.get(key, ()))

    def writes_per(self, kind: str) -> float:
        """Return all writes of this process per followed object; `kind` must be the followed one."""
        if self._kind is None or kind != self._kind.name:
            raise ValueError(f"the ledger does not follow {kind}")
        return self.writes / self.opened if self.opened else 0.0

    def _account(self, key: Key, *, opens: bool = False) -> list[Span] | None:
        account = self._accounts.get(key)
        if account is not None:
            self._accounts.move_to_end(key)
            return account
        if not opens:
            return None
        account = self._accounts[key] = [Span(BEFORE, clock.time())]
        self.opened += 1
        if len(self._accounts) > self._most:
            self._accounts.popitem(last=False)
        return account


def _count(counts: dict[str, int], what: str) -> None:
    counts[what] = counts.get(what, 0) + 1
