"""Elect the host that begins the cluster and carries the init node mark from then on.

A cluster begins once. As soon as a host has the order to begin it, or any host lists members, only a voting member can
take over the mark: a new host would begin a second cluster. No candidate is skipped silently: each one is named with
the reason why it cannot be elected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from remuda.kube.wait import Wait
from remuda.providers.controlplane.planner import progress
from remuda.providers.controlplane.planner.membership import Membership
from remuda.providers.controlplane.planner.observation import Host, Observed


class Election(msgspec.Struct, frozen=True):
    chosen: Host | None
    why: str = ""
    rejected: Mapping[str, str] = {}  # candidates, and why it is none of them

    @property
    def moves(self) -> bool:
        """The mark has to be put where it is not yet."""
        return self.chosen is not None and not self.chosen.init


def elect(observed: Observed, membership: Membership) -> Election:
    candidates = [host for host in observed.hosts if host.roles.etcd]
    marked = [host for host in candidates if host.init]
    begun = is_begun(observed, membership)
    rejected = {host.name: why for host in candidates if (why := _against(host, begun, observed, membership))}
    fit = [host for host in candidates if host.name not in rejected]
    if observed.cluster.init_machine_id:
        designated = _designated(observed.cluster.init_machine_id, candidates)
        if designated in fit:
            return Election(designated, "it is the one the user has named", rejected)
        if not begun:
            return Election(None, rejected=_only(observed.cluster.init_machine_id, designated, rejected))
    kept = [host for host in marked if _keeps(host, begun, membership)]
    if kept:
        return Election(_best(kept, membership), "it bears the mark", rejected)
    if not fit:
        return Election(None, rejected=rejected)
    return Election(_best(fit, membership), "it votes" if begun else "it is the first that is ready", rejected)


def is_begun(observed: Observed, membership: Membership) -> bool:
    """Return whether the cluster exists, or may begin to exist at any moment."""
    return observed.initialized or any(
        host.roles.etcd and host.planned and (host.init or membership.of(host) is not None) for host in observed.hosts
    )


def unready(host: Host) -> str:
    """Return why a host cannot be given a plan yet; empty if it can."""
    if host.deleting:
        return "is being deleted"
    if host.failed:
        return f"has failed: {host.failed}"
    if not host.infrastructure_ready:
        return _first(host.waits) or "its infrastructure is not ready"
    if not host.connected:
        return _first(host.waits) or "its agent has not called yet"
    return "" if host.report.secret else "it has no plan Secret yet"


def wait_for_candidate(observed: Observed, membership: Membership, election: Election) -> Wait:
    begun = is_begun(observed, membership)
    each = "; ".join(f"{name}: {why}" for name, why in sorted(election.rejected.items()))
    cluster = observed.cluster
    return Wait(
        reason="WaitingForInitNode",
        on=f"RKEControlPlane {cluster.namespace}/{cluster.name}",
        missing=f"no machine can {'take over as' if begun else 'be'} the init node "
        f"({each or 'there is no machine with the role etcd'})",
        since=cluster.created,
        then="the first that can is it",
    )


def _against(host: Host, begun: bool, observed: Observed, membership: Membership) -> str:
    if why := unready(host):
        return why
    if not begun or membership.votes(host):
        return ""
    if not membership.views and observed.initialized and progress.was_ever_applied(host):
        return ""
    return "is no voting member of the cluster that was begun: it would begin a second one"


def _keeps(host: Host, begun: bool, membership: Membership) -> bool:
    """Once it has its plan, only its end takes the mark away, or that the others do not list it."""
    if host.deleting or host.failed:
        return False
    if not host.planned:
        return not begun and not unready(host)
    return not membership.views or membership.of(host) is not None


def _best(hosts: Sequence[Host], membership: Membership) -> Host:
    def place(host: Host) -> tuple[bool, bool, float, str]:
        member = membership.of(host)
        return member is None or not membership.is_sound(member), not host.init, host.created, host.name

    return min(hosts, key=place)


def _designated(machine_id: str, candidates: Sequence[Host]) -> Host | None:
    return next((host for host in candidates if host.machine_id == machine_id), None)


def _only(machine_id: str, designated: Host | None, rejected: Mapping[str, str]) -> Mapping[str, str]:
    if designated is None:
        return {f"machine id {machine_id}": "the user has named it, and there is no etcd machine with it"}
    return {designated.name: rejected[designated.name]}


def _first(waits: Sequence[Wait]) -> str:
    return waits[0].missing if waits else ""
