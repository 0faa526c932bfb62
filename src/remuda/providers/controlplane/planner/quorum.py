"""Quorum guard: no step may cost etcd its majority.

A voter may be stopped (restarted, drained, retired) if the other voters that are known to be healthy are a majority of
all voters, or if it is the only voter. It may leave under the same condition; of two healthy voters one may leave,
because the other is then the only one. A voter is known to be healthy if every counted report says so, its host is one
of ours, and no step of ours is going on there. A voter that every counted report calls unhealthy can be stopped:
nothing is lost by that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from remuda.kube import clock
from remuda.kube.wait import Wait
from remuda.providers.controlplane.planner import membership as members
from remuda.providers.controlplane.planner import progress
from remuda.providers.controlplane.planner.membership import Membership, name_of
from remuda.providers.controlplane.planner.observation import EtcdMember, Observation, ObservedHost

QUORUM_LOST = "QuorumLost"
DEAD_SECONDS = 30.0  # a host or an API that has been silent for this long counts as dead


class Guard:
    """Guard of one decision. `disturbed`: hosts that a step of ours has stopped and that are not back yet;
    `restarting`: hosts where such a step is going on. The decision adds more. `unwell`: hosts with unhealthy probes."""

    def __init__(
        self, membership: Membership, *, disturbed: set[str], restarting: set[str], unwell: Collection[str]
    ) -> None:
        self.membership = membership
        self._disturbed = disturbed
        self._restarting = restarting
        self._unwell = unwell

    def by(self, membership: Membership) -> Guard:
        """Return the same guard, judging by another membership."""
        return Guard(membership, disturbed=self._disturbed, restarting=self._restarting, unwell=self._unwell)

    def disturb(self, host: ObservedHost) -> None:
        self._disturbed.add(host.name)
        self._restarting.add(host.name)

    def is_well(self, member: EtcdMember) -> bool:
        host = self.membership.host_of(member)
        if host is None or host.name in self._disturbed:
            return False
        contradicted = host.node is not None and host.node.voter is False
        return self.membership.is_sound(member) and not contradicted

    def against_stopping(self, host: ObservedHost, *, joining: bool) -> Wait | None:
        """Return why the host may not be stopped; None if it may. `joining`: it may begin to vote at any moment."""
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
        return self._held(
            host, f"cannot be stopped: without it only {well} of {voters} members are known to be healthy", voters
        )

    def against_leaving(self, host: ObservedHost) -> Wait | None:
        member = self.membership.of(host)
        if not self.membership.known:
            return self._unknown(host)
        if member is None or member not in self.membership.voters:
            return None
        voters, well = self._others(member)
        if well >= voters // 2 + 1 or (voters == 2 and well == 1 and self.is_well(member)):
            return None
        if voters == 1:
            then = "add another etcd machine first, or delete the whole cluster"
            return _hold(
                host, "LastEtcdMember", "is the last member of etcd: without it the cluster's data is lost", then
            )
        return self._held(
            host, f"cannot leave etcd: without it only {well} of {voters} members are known to be healthy", voters
        )

    def _against_stopping_a_joiner(self, host: ObservedHost) -> Wait | None:
        voters = len(self.membership.voters) + 1
        well = sum(self.is_well(voter) for voter in self.membership.voters)
        if well >= voters // 2 + 1:
            return None
        return _hold(
            host,
            "JoiningEtcd",
            "is joining etcd: it must not be stopped before it has finished",
            "the planner continues when it has joined or failed to join",
        )

    def _others(self, member: EtcdMember) -> tuple[int, int]:
        """Return the number of voters, and how many of the others are surely healthy."""
        voters = self.membership.voters
        return len(voters), sum(self.is_well(voter) for voter in voters if voter is not member)

    def _held(self, host: ObservedHost, missing: str, voters: int) -> Wait:
        unwell = sorted(name_of(voter) for voter in self.membership.voters if not self.is_well(voter))
        missing += f", and {voters // 2 + 1} are needed"
        told = f" (not known to be healthy: {', '.join(unwell)})" if unwell else ""
        then = "the planner continues by itself when they are healthy"
        if voters == 2 and not unwell:
            then = "with two members neither can stop: add an etcd machine, or remove one"
        return _hold(host, "QuorumAtRisk", missing + told, then)

    def _against_the_unknown(self, host: ObservedHost) -> Wait | None:
        """Return why the host may not be stopped while no host reports the members. A host that never applied a plan,
        or whose own probes are unhealthy, may be stopped nevertheless, if no other host is restarting."""
        others = [h for h in self.membership.hosts.values() if h is not host and h.planned]
        alone = not any(other.name in self._restarting for other in others)
        if not others or (alone and (not progress.was_ever_applied(host) or host.name in self._unwell)):
            return None
        return self._unknown(host)

    def _unknown(self, host: ObservedHost) -> Wait:
        if self.membership.views:
            who = ", ".join(sorted(self.membership.views))
            return _hold(
                host, "EtcdMembersDisputed", f"waiting for these hosts to agree on the members of etcd: {who}", ""
            )
        return _hold(host, "EtcdMembersUnknown", "waiting for a host to report the members of etcd", "")


def _hold(host: ObservedHost, reason: str, missing: str, then: str) -> Wait:
    return Wait(reason=reason, on=str(host), missing=missing, since=host.deleting_since, then=then)


# ---- a majority that is lost


class Loss(msgspec.Struct, frozen=True):
    wait: Wait | None = None  # None: the majority is not known to be lost
    look_at: float | None = None  # when continued silence may change the result


def loss(observed: Observation, retired: Collection[str]) -> Loss:
    """Return whether the majority of etcd's members is dead.

    Without a majority etcd answers nobody, so no member can list the others. What is left: the API is silent, the
    tunnels of dead hosts have ended, and the agents of hosts that live report probes that fail. Where all hosts are
    silent, the network between them and the manager may be what has failed, and nothing is concluded. A quorum that was
    lost before this manager started is lost until the API answers: hosts without an API open no tunnels.
    """
    found = _loss(observed, retired)
    if found.wait is not None or not observed.lost_before or observed.unanswered_since is None:
        return found
    on, _, rest = observed.lost_before.partition(": ")
    return Loss(Wait(reason=QUORUM_LOST, on=on, missing=rest))


def _loss(observed: Observation, retired: Collection[str]) -> Loss:
    since = observed.unanswered_since
    if not observed.initialized or since is None:
        return Loss()
    listed = members.gather(observed.hosts, ignored=retired)
    voters = [host for host in observed.hosts if host.name not in retired and _was_member(host, listed)]
    if len(voters) < 2:
        return Loss()  # the only member is as silent as the API
    dead = [host for host in voters if _is_dead(host, observed.now)]
    unwell = [host for host in voters if host not in dead and _is_unwell(observed, host)]
    well = len(voters) - len(dead) - len(unwell)
    if len(dead) == len(voters) or well >= len(voters) // 2 + 1:
        return Loss(look_at=_next_death(voters, observed.now))
    if observed.now - since < DEAD_SECONDS:
        return Loss(look_at=since + DEAD_SECONDS)
    return Loss(_lost(observed, voters, dead, unwell))


def _was_member(host: ObservedHost, listed: Membership) -> bool:
    """Return whether it was a member in the last known list."""
    if not host.roles.etcd or not progress.was_ever_applied(host):
        return False
    return not listed.views or listed.of(host) is not None


def _is_unwell(observed: Observation, host: ObservedHost) -> bool:
    """Return whether it reports a failure itself, and not because of a plan that it is applying."""
    return progress.is_applied(host) and bool(_failing(observed, host))


def _failing(observed: Observation, host: ObservedHost) -> list[str]:
    """Return the failing probes of components. The probe of the unit does not count: a member that outlives its unit
    still votes."""
    unit = progress.unit_probe(observed.cluster)
    return [name for name in progress.unhealthy_probes(observed, host) if name != unit]


def _is_dead(host: ObservedHost, now: float) -> bool:
    return host.silent_since is not None and now - host.silent_since >= DEAD_SECONDS


def _next_death(voters: Sequence[ObservedHost], now: float) -> float | None:
    ends = [host.silent_since + DEAD_SECONDS for host in voters if host.silent_since is not None]
    return min((at for at in ends if at > now), default=None)


def _lost(
    observed: Observation, voters: Sequence[ObservedHost], dead: Sequence[ObservedHost], unwell: Sequence[ObservedHost]
) -> Wait:
    needed = len(voters) // 2 + 1
    gone = [f"{host.name} silent since {clock.rfc3339(host.silent_since)}" for host in dead if host.silent_since]
    ill = [f"{host.name} reports failing probes: {', '.join(_failing(observed, host))}" for host in unwell]
    named = gone if len(voters) - len(dead) < needed else [*gone, *ill]
    start = ", ".join(host.name for host in (dead if named is gone else (*dead, *unwell)))
    cluster = observed.cluster
    return Wait(
        reason=QUORUM_LOST,
        on=f"etcd of {cluster.namespace}/{cluster.name}",
        missing=f"quorum is lost: {needed} of {len(voters)} members must run; {'; '.join(named)}",
        since=observed.unanswered_since,
        then=f"start {start} again, or restore from a snapshot; until then no member is changed",
    )
