"""Changes of etcd's members: one host joins or leaves at a time, and only while all members are healthy.

A host joins by its first plan. From then on it may become a member at any moment, until it votes, or until it is clear
that it will not: its plan failed a while ago, or it has been silent for longer than `JOIN_SECONDS`. etcd itself refuses
a second learner, so a host that joins late does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence

from remuda.kube.wait import Wait
from remuda.providers.controlplane.planner import progress
from remuda.providers.controlplane.planner.membership import Membership, name_of, node_of, reports_membership
from remuda.providers.controlplane.planner.observation import EtcdMember, ObservedHost
from remuda.providers.controlplane.planner.quorum import Guard

JOIN_SECONDS = 600.0  # a host that has not joined by then blocks no other host
FAILED_JOIN_SECONDS = 60.0  # a failed attempt may have added a member; the others report it by then


class Changes:
    def __init__(self, guard: Guard, hosts: Sequence[ObservedHost], retired: set[str], now: float) -> None:
        self._guard = guard
        self._now = now
        self._retired = retired
        self.joining = [h for h in hosts if h.roles.etcd and self.may_become_member(h)]
        self._leaving = [
            h for h in hosts if h.node is not None and h.node.leaving and guard.membership.of(h) is not None
        ]
        self._begun: ObservedHost | None = None  # in this very decision

    @property
    def membership(self) -> Membership:
        return self._guard.membership

    def may_become_member(self, host: ObservedHost) -> bool:
        """Return whether the host may still join: its plan makes it join, it does not vote yet, and nothing rules it
        out."""
        if not host.planned or self.membership.votes(host) or (host.node is not None and host.node.left):
            return False
        if host.name in self._retired:  # it may still be at the plan before
            return not progress.is_applied(host) and self._now < self.join_deadline(host)
        member = self.membership.of(host)
        waited = self._now - progress.asked_at(host, self._now)
        if member is not None:
            return waited < JOIN_SECONDS or not self.membership.is_down(member)
        return waited < (FAILED_JOIN_SECONDS if progress.is_failing(host) else JOIN_SECONDS)

    def may_vote(self, host: ObservedHost) -> bool:
        """Return whether the host may become a member, or reports itself as one while the others' reports may be out of
        date."""
        has_left = host.node is not None and host.node.left
        return self.may_become_member(host) or (not has_left and reports_membership(host))

    def join_deadline(self, host: ObservedHost) -> float:
        if host.name in self._retired:
            return (host.report.delivered or 0.0) + JOIN_SECONDS
        limit = FAILED_JOIN_SECONDS if progress.is_failing(host) else JOIN_SECONDS
        return progress.asked_at(host, self._now) + limit

    def under_way(self, *, but: ObservedHost | None = None, leaving: bool = True) -> ObservedHost | None:
        """A host whose membership is changing; without `leaving`, none that was asked to leave and has not yet."""
        changing = [*self._leaving, *self.joining] if leaving else self.joining
        for host in (self._begun, *changing):
            if host is not None and (but is None or host.name != but.name):
                return host
        return None

    def begin(self, host: ObservedHost) -> None:
        self._begun = host

    def against_joining(self, host: ObservedHost) -> Wait | None:
        """Return why the host may not join etcd now; None if it may, or is joining already."""
        other = self.under_way(but=host)
        if other is not None:
            return _wait(
                host, f"{other} is joining or leaving etcd: one at a time", then="the next host joins after that"
            )
        if self.under_way() is not None:
            return None
        if not self.membership.known:
            return _wait(host, "no host has reported the members of etcd yet, or the reports differ")
        learner = next((m for m in self.membership.learners if self.membership.host_of(m) != host), None)
        if learner is not None:
            return _wait(host, f"member {name_of(learner)} of etcd is still a learner")
        unwell = [name_of(voter) for voter in self.membership.voters if not self._guard.is_well(voter)]
        if unwell:
            return _wait(
                host,
                f"these members of etcd are not known to be healthy: {', '.join(sorted(unwell))}",
                then="the host joins when all members are healthy",
            )
        return None

    def against_leaving(self, host: ObservedHost, seen: Membership) -> Wait | None:
        """Return why the host may not leave etcd now; None if it may. A dead member does not wait for one that is
        leaving, because it may be what prevents that one from leaving."""
        member = seen.of(host)
        dead = member is not None and seen.is_down(member)
        other = self.under_way(but=host, leaving=not dead)
        if other is not None:
            return _wait(host, f"{other} is joining or leaving etcd: one at a time")
        if (learner := next((m for m in seen.learners if m != seen.of(host)), None)) is not None:
            return _wait(host, f"member {name_of(learner)} of etcd is still a learner")
        return self._guard.by(seen).against_leaving(host)

    def strays(self) -> list[EtcdMember]:
        """Return the members that belong to no Machine. A dead one may prevent others from leaving, so it does not
        wait for them."""
        if not self.membership.known or self._begun is not None or self.joining:
            return []
        return [m for m in self.membership.members if self.membership.host_of(m) is None]

    def may_expel(self, stray: EtcdMember) -> bool:
        """Return whether the member is dead for sure, and the others are a majority without it."""
        voters = self.membership.voters
        well = sum(self._guard.is_well(voter) for voter in voters)
        return bool(node_of(stray)) and self.membership.is_down(stray) and well >= len(voters) // 2 + 1


def _wait(host: ObservedHost, missing: str, *, then: str = "") -> Wait:
    since = host.deleting_since if host.deleting else host.connected_since
    return Wait(reason="WaitingForEtcd", on=str(host), missing=missing, since=since, then=then)
