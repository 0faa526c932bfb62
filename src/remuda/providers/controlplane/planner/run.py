"""One run of the planner: the observation, facts that follow from all hosts together, and the decision as it grows.

A host's plan lists the servers that it may join by: all servers that stay, so that one dead server blocks no host.
Servers join by hosts with etcd, workers by control planes. The list is ordered by age and changes only when machines
are added or removed, because it is part of a plan and a host joins by the first server that answers. Failed servers
come last. Servers that are being deleted are listed only if there is no other: the last server may be replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from remuda.kube.wait import Wait
from remuda.providers.controlplane.planner import membership, progress
from remuda.providers.controlplane.planner.changes import Changes
from remuda.providers.controlplane.planner.decision import Act, HostStatus
from remuda.providers.controlplane.planner.membership import Membership
from remuda.providers.controlplane.planner.observation import ClusterFacts, Observation, ObservedHost
from remuda.providers.controlplane.planner.quorum import Guard
from remuda.providers.controlplane.render import Change, Placement
from remuda.providers.shared.distros import Distro


class Render(Protocol):
    def __call__(
        self, cluster: ClusterFacts, host: ObservedHost, placement: Placement, *, before: bytes = b""
    ) -> bytes: ...


class Compare(Protocol):
    def __call__(self, before: bytes, after: bytes) -> Change: ...


class Retire(Protocol):
    def __call__(self, cluster: ClusterFacts, host: ObservedHost) -> bytes: ...


class Explain(Protocol):
    def __call__(self, before: bytes, after: bytes) -> str: ...


class PlanFunctions(msgspec.Struct, frozen=True):
    """Functions that render, compare, retire and explain plans."""

    render: Render
    compare: Compare
    retire: Retire
    explain: Explain


class Run:
    def __init__(self, observed: Observation, functions: PlanFunctions) -> None:
        self.observed = observed
        self.cluster = observed.cluster
        self.now = observed.now
        self._functions = functions
        self._changes: dict[str, Change] = {}
        self.retirements = {
            h.name: functions.retire(observed.cluster, h) for h in observed.hosts if h.deleting and h.roles.etcd
        }
        self.retired = {h.name for h in observed.hosts if h.planned and h.report.plan == self.retirements.get(h.name)}
        self.membership = membership.gather(observed.hosts, ignored=self.retired)
        etcd = [h for h in observed.hosts if h.roles.etcd and h.planned]
        restarting = {h.name for h in etcd if self._is_restarting(h)}
        self.guard = Guard(
            self.membership,
            disturbed={h.name for h in etcd if self.is_disturbed(h)},
            restarting=restarting,
            unwell={h.name for h in etcd if progress.unhealthy_probes(observed, h)},
        )
        self.changes = Changes(self.guard, observed.hosts, self.retired, observed.now)
        self.init: ObservedHost | None = None
        self.frozen = False  # no plan changes now
        self.acts: list[Act] = []
        self.statuses: dict[str, HostStatus] = {}
        self.waits: list[Wait] = []
        self.held: list[Wait] = []
        self._look_at: list[float] = []
        for host in self.changes.joining:
            self.look_at(self.changes.join_deadline(host))

    # ---- plans

    def desired(self, host: ObservedHost) -> bytes:
        init = self.init is not None and self.init.name == host.name
        servers = () if init else join_servers(self.cluster.distro, self.observed.hosts, self.membership, host)
        return self._functions.render(self.cluster, host, Placement(init, servers), before=host.report.plan)

    def compare(self, before: bytes, after: bytes) -> Change:
        return "none" if before == after else self._functions.compare(before, after)

    def explain(self, host: ObservedHost, after: bytes) -> str:
        return self._functions.explain(host.report.plan, after)

    def outstanding(self, host: ObservedHost) -> Change:
        """Return the change that the host's latest plan makes, as long as the host has not applied that plan."""
        if host.name not in self._changes:
            report = host.report
            applied = progress.is_applied(host)
            change: Change = (
                "none" if applied else self.compare(report.applied, report.plan) if report.applied else "restart"
            )
            if not applied and report.superseded and change not in progress.RESTARTING:
                change = "restart"  # the plan before may have restarted it already: this one does so again
            self._changes[host.name] = change
        return self._changes[host.name]

    def is_disturbed(self, host: ObservedHost) -> bool:
        """Return whether a step of ours may stop the host's services, or has stopped them and they are not back yet."""
        if progress.is_applied(host) or progress.is_failing(host):
            return bool(progress.unhealthy_probes(self.observed, host))
        return self.outstanding(host) in progress.RESTARTING

    def _is_restarting(self, host: ObservedHost) -> bool:
        """Return whether the host is working on a plan that stops its services."""
        at_it = host.report.state in ("pending", "in-progress") and not progress.is_unanswered(host, self.now)
        return at_it and self.outstanding(host) in progress.RESTARTING

    def is_out_of_service(self, host: ObservedHost) -> bool:
        """Return whether the host is out of service for sure, so that the next step there loses nothing more."""
        if progress.is_applied(host):
            return progress.reports_failure(self.observed, host)
        return self.outstanding(host) in progress.RESTARTING

    # ---- the answer

    def hold(self, wait: Wait) -> Wait:
        self.held.append(wait)
        return wait

    def look_at(self, moment: float) -> None:
        if moment > self.now:
            self._look_at.append(moment)

    @property
    def look_again(self) -> float | None:
        return min(self._look_at) - self.now if self._look_at else None

    def is_unanswered(self, host: ObservedHost) -> bool:
        if host.report.state == "pending":
            self.look_at(progress.asked_at(host, self.now) + progress.UNANSWERED)
        return progress.is_unanswered(host, self.now)


# ---- servers to join by -------------------------------------------------------------------------------------------


def join_servers(
    distro: Distro, hosts: Sequence[ObservedHost], membership: Membership, joiner: ObservedHost
) -> tuple[str, ...]:
    # All servers, not one: with a single join server, its failure blocks new nodes (rancher/rancher#41375).
    listed = [host for host in hosts if host.name != joiner.name and _address(host) and _serves(host, joiner)]
    staying = [host for host in listed if not host.deleting]
    if not any(_has_joined(host, membership) for host in staying):
        staying += [host for host in listed if host.deleting and _has_joined(host, membership)]
    staying.sort(key=lambda host: (host.deleting, bool(host.failed), host.created, host.name))
    return tuple(_url(distro, host) for host in staying)


def _serves(host: ObservedHost, joiner: ObservedHost) -> bool:
    return host.roles.etcd if joiner.roles.server else host.roles.control_plane


def _has_joined(host: ObservedHost, membership: Membership) -> bool:
    """Return whether the host itself has joined, so that others can join by it."""
    if host.roles.etcd and membership.views:
        return membership.of(host) is not None
    return progress.was_ever_applied(host)


def _address(host: ObservedHost) -> str:
    return next(iter((*host.internal_addresses, *host.external_addresses)), "")


def _url(distro: Distro, host: ObservedHost) -> str:
    name = _address(host)
    return f"https://{f'[{name}]' if ':' in name else name}:{distro.supervisor_port}"
