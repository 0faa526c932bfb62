"""Membership of a server that does not have the data: it reports to the leader and stores the answers.

Without an answer for the election timeout, the server assumes that there is no leader, and its health check fails. It
then also asks the other servers, in case the data has moved meanwhile. A server that was removed leaves a tombstone and
ends; if it is started again, it refuses to run.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from remuda.lab import LabError
from remuda.lab.nano import membership_client
from remuda.lab.nano.configuration import FatalError
from remuda.lab.nano.layout import NanoLayout, write_file
from remuda.lab.nano.members import MemberList
from remuda.lab.nano.membership_client import Heartbeat, Intervals, MembershipState
from remuda.lab.nano.supervisor_client import Caller, NoAnswer, UnexpectedAnswer

log = logging.getLogger(__name__)

REMOVED = "this node has been removed from the cluster: remove {} to let it join again as a new member"


class LeadershipMoved(LabError):
    """Raised when this server has received the data: it must restart as the leader."""


class Follower:
    def __init__(
        self, layout: NanoLayout, members: MemberList, own: Heartbeat, intervals: Intervals, caller: Caller
    ) -> None:
        self.own = own
        self.intervals = intervals
        self._layout = layout
        self._caller = caller
        self._members = members
        self._standing: MembershipState | None = None
        self._answered = float("-inf")
        self._silent = False

    @property
    def members(self) -> MemberList:
        return self._members

    @property
    def leader_url(self) -> str:
        leader = self._members.find(self._members.leader)
        return leader.url if leader is not None else ""

    def standing(self) -> MembershipState:
        known = self._standing
        heard = self._now() - self._answered <= self.intervals.election
        if known is not None and heard and known.members.term == self._members.term:
            return known
        return MembershipState(members=self._members)

    async def run(self) -> None:
        """Report until the server is removed; then raise FatalError."""
        while True:
            await self.report()
            await asyncio.sleep(self.intervals.heartbeat)

    async def report(self) -> bool:
        """Report to the leader and return whether it answered. Raises FatalError when this server was removed."""
        try:
            answer = await self._caller.ask(
                "POST",
                f"{self.leader_url}{self._layout.flavour.prefix}/etcd/heartbeat",
                body=msgspec.json.encode(self.own),
                seconds=self.intervals.election,
            )
            self._take(msgspec.json.decode(answer, type=MembershipState))
        except UnexpectedAnswer as answered:
            if answered.code == 410 and self.own.member:
                write_file(self._layout.tombstone, b"")
                raise FatalError(REMOVED.format(self._layout.db)) from None
            self._say_silent(str(answered))
        except (NoAnswer, msgspec.DecodeError, msgspec.ValidationError) as error:
            self._say_silent(str(error))
        else:
            self._silent = False
            return True
        await self._look_for_leader()
        return False

    def _take(self, standing: MembershipState) -> None:
        self._standing = standing
        self._answered = self._now()
        self.remember(standing.members)

    def remember(self, members: MemberList) -> None:
        # A list with an older term is from before the data moved.
        if members != self._members and members.term >= self._members.term:
            membership_client.save(self._layout.cluster, members)
            self._members = members

    async def _look_for_leader(self) -> None:
        for member in self._members.members:
            if member.name in (self.own.member, self._members.leader):
                continue
            try:
                answer = await self._caller.ask(
                    "GET", f"{member.url}{self._layout.flavour.prefix}/cluster", seconds=2.0
                )
                known = msgspec.json.decode(answer, type=MemberList)
            except (NoAnswer, UnexpectedAnswer, msgspec.DecodeError, msgspec.ValidationError):
                continue
            if known.term > self._members.term:
                log.warning("%s is the leader now", known.leader)
                self.remember(known)
                return

    def _say_silent(self, why: str) -> None:
        if not self._silent:
            log.warning("the leader does not answer: %s", why)
        self._silent = True

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
