"""The guard of the quorum: never a step that could cost the majority.

A voter may be stopped (restarted, drained, retired) when those others that are surely well are a majority of all that
vote, or when it is the only one. It may leave under the same condition; of two that are both well one may leave, since
the other is then the only one. What is surely well: everybody who counts calls it so, its host is ours, and no step of
ours is going on there. A voter that everybody calls unhealthy can be stopped: nothing is lost by that.
"""

from __future__ import annotations

from remuda.kube.waits import Wait
from remuda.providers.controlplane.planner import progress
from remuda.providers.controlplane.planner.membership import Membership, name_of
from remuda.providers.controlplane.planner.observed import Host, Member


class Guard:
    """`disturbed`: hosts that a step of ours has stopped, or that are not back yet; `restarting`: where it is going on.
    More are added in the course of one decision."""

    def __init__(self, membership: Membership, disturbed: set[str], restarting: set[str]) -> None:
        self.membership = membership
        self._disturbed = disturbed
        self._restarting = restarting

    def by(self, membership: Membership) -> Guard:
        """The same, by what others say."""
        return Guard(membership, self._disturbed, self._restarting)

    def disturb(self, host: Host) -> None:
        self._disturbed.add(host.name)
        self._restarting.add(host.name)

    def is_well(self, member: Member) -> bool:
        host = self.membership.host_of(member)
        if host is None or host.name in self._disturbed:
            return False
        contradicted = host.node is not None and host.node.voter is False
        return self.membership.is_sound(member) and not contradicted

    def against_stopping(self, host: Host, *, joining: bool) -> Wait | None:
        """`joining`: it may begin to vote at any moment."""
        member = self.membership.of(host)
        if not self.membership.views:
            return self._against_the_unknown(host)
        if member is not None and self.membership.is_down(member):
            return None
        if self.membership.disputed:
            return self._unknown(host) if joining or member is not None else None
        if member is None or member not in self.membership.voters:
            return self._against_stopping_a_joiner(host) if joining else None
        voters, well = self._others(member)
        if voters == 1 or well >= voters // 2 + 1:
            return None
        return self._held(host, f"is not stopped: only {well} others would surely be left of {voters} members", voters)

    def against_leaving(self, host: Host) -> Wait | None:
        member = self.membership.of(host)
        if not self.membership.known:
            return self._unknown(host)
        if member is None or member not in self.membership.voters:
            return None
        voters, well = self._others(member)
        if well >= voters // 2 + 1 or (voters == 2 and well == 1 and self.is_well(member)):
            return None
        if voters == 1:
            then = "add another etcd machine first; or delete the whole cluster"
            return _hold(host, "LastEtcdMember", "is the last member of etcd: the cluster ends with it", then)
        return self._held(host, f"does not leave etcd: only {well} others are surely well of {voters} members", voters)

    def _against_stopping_a_joiner(self, host: Host) -> Wait | None:
        voters = len(self.membership.voters) + 1
        well = sum(self.is_well(voter) for voter in self.membership.voters)
        if well >= voters // 2 + 1:
            return None
        return _hold(
            host,
            "JoiningEtcd",
            "is just joining etcd: it is not stopped half way",
            "goes on when it has joined, or has failed to",
        )

    def _others(self, member: Member) -> tuple[int, int]:
        """How many vote, and how many of the others are surely well."""
        voters = self.membership.voters
        return len(voters), sum(self.is_well(voter) for voter in voters if voter is not member)

    def _held(self, host: Host, missing: str, voters: int) -> Wait:
        unwell = sorted(name_of(voter) for voter in self.membership.voters if not self.is_well(voter))
        missing += f", and {voters // 2 + 1} are needed"
        told = f" (not surely well: {', '.join(unwell)})" if unwell else ""
        then = "goes on by itself when they are well"
        if voters == 2 and not unwell:
            then = "two members cannot do without either: add an etcd machine, or remove one"
        return _hold(host, "QuorumAtRisk", missing + told, then)

    def _against_the_unknown(self, host: Host) -> Wait | None:
        """Nobody says who the members are. A host that is not well by its own word can be helped nevertheless, if it is
        the only one that is being helped."""
        others = [h for h in self.membership.hosts.values() if h is not host and h.planned]
        alone = not any(other.name in self._restarting for other in others)
        if not others or (alone and (not progress.was_ever_applied(host) or progress.unhealthy_probes(host))):
            return None
        return self._unknown(host)

    def _unknown(self, host: Host) -> Wait:
        if self.membership.views:
            who = ", ".join(sorted(self.membership.views))
            return _hold(
                host, "EtcdMembersDisputed", f"waits until these agree on who the members of etcd are: {who}", ""
            )
        return _hold(host, "EtcdMembersUnknown", "waits until a host says who the members of etcd are", "")


def _hold(host: Host, reason: str, missing: str, then: str) -> Wait:
    return Wait(reason=reason, on=str(host), missing=missing, since=host.deleting_since, then=then)
