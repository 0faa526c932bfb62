"""One run of the planner: what was observed, what follows from all hosts together, and the answer as it grows."""

from __future__ import annotations

from typing import Protocol

import msgspec

from remuda.kube.wait import Wait
from remuda.providers.controlplane.planner import join_servers, membership, progress, retries
from remuda.providers.controlplane.planner.changes import Changes
from remuda.providers.controlplane.planner.decision import Act, HostStatus
from remuda.providers.controlplane.planner.observation import Cluster, Host, Observed
from remuda.providers.controlplane.planner.quorum import Guard
from remuda.providers.controlplane.render import Change, Placement


class Render(Protocol):
    def __call__(self, cluster: Cluster, host: Host, placement: Placement, *, before: bytes = b"") -> bytes: ...


class Compare(Protocol):
    def __call__(self, before: bytes, after: bytes) -> Change: ...


class Retire(Protocol):
    def __call__(self, cluster: Cluster, host: Host) -> bytes: ...


class Explain(Protocol):
    def __call__(self, before: bytes, after: bytes) -> str: ...


class PlanFunctions(msgspec.Struct, frozen=True):
    """Functions that render, compare, retire and explain plans."""

    render: Render
    compare: Compare
    retire: Retire
    explain: Explain


class Run:
    def __init__(self, observed: Observed, functions: PlanFunctions) -> None:
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
        self.init: Host | None = None
        self.frozen = False  # no plan changes now
        self.acts: list[Act] = []
        self.statuses: dict[str, HostStatus] = {}
        self.waits: list[Wait] = []
        self.held: list[Wait] = []
        self._look_at: list[float] = []
        for host in self.changes.joining:
            self.look_at(self.changes.patience_ends(host))

    # ---- plans

    def desired(self, host: Host) -> bytes:
        init = self.init is not None and self.init.name == host.name
        servers = () if init else join_servers.servers(self.cluster.distro, self.observed.hosts, self.membership, host)
        return self._functions.render(self.cluster, host, Placement(init, servers), before=host.report.plan)

    def compare(self, before: bytes, after: bytes) -> Change:
        return "none" if before == after else self._functions.compare(before, after)

    def explain(self, host: Host, after: bytes) -> str:
        return self._functions.explain(host.report.plan, after)

    def outstanding(self, host: Host) -> Change:
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

    def is_disturbed(self, host: Host) -> bool:
        """Something of ours is going on there that may stop its services, or has, and they are not back yet."""
        if progress.is_applied(host) or progress.is_failing(host):
            return bool(progress.unhealthy_probes(self.observed, host))
        return self.outstanding(host) in progress.RESTARTING

    def _is_restarting(self, host: Host) -> bool:
        """Return whether the host is working on a plan that stops its services."""
        at_it = host.report.state in ("pending", "in-progress") and not retries.is_unanswered(host, self.now)
        return at_it and self.outstanding(host) in progress.RESTARTING

    def is_out_of_service(self, host: Host) -> bool:
        """Surely so: nothing more is lost by what is done there next."""
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

    def is_unanswered(self, host: Host) -> bool:
        if host.report.state == "pending":
            self.look_at(retries.asked_at(host, self.now) + retries.UNANSWERED)
        return retries.is_unanswered(host, self.now)
