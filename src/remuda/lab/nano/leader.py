"""Membership of the server that has the data: it receives the others' reports, and returns the state of the cluster.

A member is alive while it reports. After a start only the leader itself is alive, so a leader that restarts alone has
no majority and writes nothing until the others report, as a member of etcd would. The list changes in one place, and is
on disk before it takes effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from remuda.lab import LabError
from remuda.lab.nano import membership_client
from remuda.lab.nano.layout import NanoLayout
from remuda.lab.nano.members import NO_LEADER, Member, MemberList, MemberRefused
from remuda.lab.nano.membership_client import Heartbeat, Intervals, MembershipState

log = logging.getLogger(__name__)

CATCH_UP_SECONDS = 1.0  # a learner that has reported for this long has caught up
STALL_SECONDS = 300.0  # a learner that has not reported for this long is removed: it would block all other joins


class MemberRemoved(LabError):
    """Error for a report from a server that is no longer a member."""


class Leader:
    def __init__(self, layout: NanoLayout, members: MemberList, own: Heartbeat, intervals: Intervals) -> None:
        self.own = own
        self.intervals = intervals
        self.handing_over = ""  # why writes are refused now
        self._layout = layout
        self._members = members
        self._heard: dict[str, tuple[Heartbeat, float]] = {}  # latest report of each node
        self._learning_since: dict[str, float] = {}
        self._stalled_since: dict[str, float] = {}
        self._changed: list[Callable[[], None]] = []

    @property
    def members(self) -> MemberList:
        return self._members

    def on_change(self, listener: Callable[[], None]) -> None:
        """Register a function to call when the list has changed."""
        self._changed.append(listener)

    def alive(self) -> set[str]:
        now = self._now()
        heard = (r.member for r, at in self._heard.values() if now - at <= self.intervals.election)
        return {self.own.member, *filter(None, heard)}

    def standing(self) -> MembershipState:
        alive = self.alive()
        now = self._now()
        reports = [r for r, at in self._heard.values() if now - at <= self.intervals.election]
        return MembershipState(
            members=self._members,
            alive=tuple(sorted(one.name for one in self._members.members if one.name in alive)),
            leader=self._members.has_majority(alive),
            apiservers=tuple(sorted(r.api_url for r in (self.own, *reports) if r.api)),
        )

    def refusing(self) -> str:
        """Return why writes are refused now; empty when they are not."""
        if self.handing_over:
            return self.handing_over
        return "" if self._members.has_majority(self.alive()) else NO_LEADER

    # -- requests of other servers -------------------------------------------------------------------------------

    def hear(self, report: Heartbeat) -> MembershipState:
        """Record a report. Raise MemberRemoved."""
        if report.member and self._members.find(report.member) is None:
            self._heard.pop(report.node, None)
            raise MemberRemoved(f"{report.member} is not, or no more, a member of this cluster")
        if report.node != self.own.node:
            self._heard[report.node] = (report, self._now())
        return self.standing()

    def join(self, new: Member) -> MemberList:
        """Add a member. Raise MemberRefused."""
        self._keep(self._members.add(new, self.alive()), f"{new.name} at {new.address} joins as a learner")
        return self._members

    def remove(self, name: str) -> None:
        """Remove a member. Raise MemberRefused."""
        self._keep(self._members.remove(name, self.alive()), f"{name} is removed")
        self._heard = {node: heard for node, heard in self._heard.items() if heard[0].member != name}

    # -- background ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Promote learners that have caught up, and remove stalled ones."""
        while True:
            await asyncio.sleep(self.intervals.heartbeat / 2)
            self.look_after_learners()

    def look_after_learners(self) -> None:
        self._promote()
        alive, now = self.alive(), self._now()
        stalled = {one.name for one in self._members.members if one.learner and one.name not in alive}
        self._stalled_since = {name: self._stalled_since.get(name, now) for name in stalled}
        for name, since in self._stalled_since.items():
            if now - since >= STALL_SECONDS and self._members.has_majority(alive):
                self.remove(name)

    def _promote(self) -> None:
        alive, now = self.alive(), self._now()
        learning = {one.name for one in self._members.members if one.learner and one.name in alive}
        self._learning_since = {name: self._learning_since.get(name, now) for name in learning}
        for name, since in self._learning_since.items():
            if now - since >= CATCH_UP_SECONDS:
                try:
                    self._keep(self._members.promote(name, alive), f"{name} has caught up and votes from now on")
                except MemberRefused as refused:
                    log.warning("cannot promote %s: %s", name, refused)

    def _keep(self, members: MemberList, what: str) -> None:
        if members == self._members:
            return
        membership_client.save(self._layout.cluster, members)
        log.warning("etcd: %s; members are %s", what, ", ".join(one.name for one in members.members))
        self._members = members
        for listener in self._changed:
            listener()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
