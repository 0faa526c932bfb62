"""Rollout order of hosts: which tiers may begin, which may change, and how many hosts of one may be out of service at a
time.

The order is bootstrap (the init node) → etcd → control plane → worker. Voters of etcd change one at a time, whatever
concurrency the user sets; the quorum guard applies in addition. An unreachable host takes no slot. A host that is stuck
with a change of configuration does not block later tiers, as long as it surely runs the desired version: workers never
run a newer version than a server.
"""

from __future__ import annotations

from collections.abc import Mapping

from remuda.capi import amounts
from remuda.providers.controlplane.planner import progress
from remuda.providers.controlplane.planner.decision import HostStatus, Tier
from remuda.providers.controlplane.planner.observation import ObservedHost
from remuda.providers.controlplane.planner.run import Run
from remuda.providers.shared.types.configuration import UpgradeStrategy

ORDER: tuple[Tier, ...] = ("bootstrap", "etcd", "control plane", "worker")


def tier_of(host: ObservedHost, init: ObservedHost | None) -> Tier | None:
    if host.roles.etcd:
        return "bootstrap" if init is not None and host.name == init.name else "etcd"
    if host.roles.control_plane:
        return "control plane"
    return "worker" if host.roles.worker else None


def group_of(tier: Tier) -> Tier:
    """Return the tier whose slots this tier shares: the init node is one of the etcd hosts."""
    return "etcd" if tier == "bootstrap" else tier


def at_a_time(strategy: UpgradeStrategy, tier: Tier, count: int) -> int:
    """Return how many of `count` hosts of a tier may be out of service at a time."""
    if group_of(tier) == "etcd":
        # As Rancher does since several etcd nodes were upgraded at once (rancher/rancher#36776).
        return 1
    wanted = strategy.control_plane_concurrency if tier == "control plane" else strategy.worker_concurrency
    number = amounts.resolve(int(wanted) if wanted.isdecimal() else wanted or 1, count, up=True)
    return number or count


class RolloutOrder:
    def __init__(self, run: Run, by_tier: Mapping[Tier, list[ObservedHost]]) -> None:
        self._run = run
        self._sizes: dict[Tier, int] = {}
        self._out: dict[Tier, set[str]] = {}
        for tier, hosts in by_tier.items():
            group = group_of(tier)
            self._sizes[group] = self._sizes.get(group, 0) + len(hosts)
            self._out.setdefault(group, set()).update(host.name for host in hosts if self._is_out(host))
        self._behind: list[str] = []  # hosts of earlier tiers that are not done
        self._etcd, self._control_plane = False, False  # whether one is done

    def take(self, host: ObservedHost, tier: Tier) -> None:
        self._out.setdefault(group_of(tier), set()).add(host.name)

    def record(self, host: ObservedHost, status: HostStatus) -> None:
        """Record the status of a host; all hosts of a tier are recorded before the next tier asks."""
        self._etcd |= status.up_to_date and host.roles.etcd
        self._control_plane |= status.up_to_date and host.roles.control_plane
        if host.planned and not host.failed and not status.up_to_date and not self._is_passed_over(host, status):
            self._behind.append(host.name)

    @property
    def control_plane_is_there(self) -> bool:
        return self._control_plane

    def against_beginning(self, host: ObservedHost, tier: Tier) -> str | None:
        """Return why a host cannot have its first plan yet, in the wording users know; None if it can."""
        if tier == "bootstrap":
            return None
        if tier == "worker":
            there = self._control_plane or self._run.observed.initialized
            return None if there else "waiting for control plane to be available"
        if self._etcd or self._run.observed.initialized:
            return None
        return "waiting for bootstrap etcd to be available" if tier == "etcd" else "waiting for etcd to be available"

    def against(self, host: ObservedHost, tier: Tier) -> str | None:
        """Return why a host that is in service may not change now; None if it may."""
        if (before := self.against_overtaking(tier)) is not None:
            return before
        group = group_of(tier)
        out = self._out.get(group, set()) - {host.name}
        allowed = at_a_time(self._run.cluster.spec.upgrade_strategy, tier, self._sizes[group])
        if len(out) < allowed:
            return None
        return f"waiting for its turn: {', '.join(sorted(out)[:3])} out of service, {allowed} at a time"

    def against_overtaking(self, tier: Tier) -> str | None:
        """Return why earlier tiers must finish first; None if the tier may go on."""
        if self._behind and group_of(tier) != "etcd":
            return f"waiting for its turn: first {', '.join(self._behind[:3])}"
        return None

    def _is_out(self, host: ObservedHost) -> bool:
        """Return whether a step of ours took the host out of service. A host with its first plan was never in it."""
        if host.failed or not progress.was_ever_applied(host) or self._run.is_unanswered(host):
            return False
        if host.drain.requested:
            return True
        if not progress.is_applied(host):
            return self._run.outstanding(host) in progress.RESTARTING
        return bool(progress.unhealthy_probes(self._run.observed, host))

    def _is_passed_over(self, host: ObservedHost, status: HostStatus) -> bool:
        if self._run.is_unanswered(host):
            return self._run.observed.reachable and not self._serves_another_version(host)
        held = status.wait is not None and status.wait in self._run.held
        stuck = progress.is_failing(host) or held
        return stuck and self._run.observed.reachable and bool(progress.runs_version(self._run.cluster, host))

    def _serves_another_version(self, host: ObservedHost) -> bool:
        """Return whether the Node is ready with another version: the agent is silent, but its services run."""
        ready = host.node is not None and host.node.ready
        return ready and progress.runs_version(self._run.cluster, host) is False
