"""Begin a cluster: wait for its initial machines, then elect the host that begins it and carries the init node mark.

A cluster begins once. As soon as a host has the order to begin it, or any host lists members, only a voting member can
take over the mark: a new host would begin a second cluster. No candidate is skipped silently: each one is named with
the reason why it cannot be elected.

The cluster does not wait for its initial machines for ever: when the first host that could begin it has been ready for
`GRACE_SECONDS`, the cluster begins without the machines that are missing or have failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from remuda.kube import clock
from remuda.kube.wait import Wait
from remuda.providers.controlplane.planner import progress
from remuda.providers.controlplane.planner.membership import Membership
from remuda.providers.controlplane.planner.observation import Observation, ObservedHost, Pool

GRACE_SECONDS = 600.0  # from when the first etcd host is ready


class Election(msgspec.Struct, frozen=True):
    chosen: ObservedHost | None
    why: str = ""
    rejected: Mapping[str, str] = {}  # candidates, and why it is none of them

    @property
    def moves(self) -> bool:
        """The mark has to be put where it is not yet."""
        return self.chosen is not None and not self.chosen.init


def elect(observed: Observation, membership: Membership) -> Election:
    candidates = [host for host in observed.hosts if host.roles.etcd]
    marked = [host for host in candidates if host.init]
    begun = is_begun(observed, membership)
    rejected = {host.name: why for host in candidates if (why := _against(host, begun, observed, membership))}
    fit = [host for host in candidates if host.name not in rejected]
    if observed.cluster.init_machine_id:
        designated = _designated(observed.cluster.init_machine_id, candidates)
        if designated in fit:
            return Election(designated, "the user chose it", rejected)
        if not begun:
            return Election(None, rejected=_only(observed.cluster.init_machine_id, designated, rejected))
    kept = [host for host in marked if _keeps(host, begun, membership)]
    if kept:
        return Election(_best(kept, membership), "it already is the init node", rejected)
    if not fit:
        return Election(None, rejected=rejected)
    return Election(
        _best(fit, membership), "it is a voting member" if begun else "it is the first ready machine", rejected
    )


def is_begun(observed: Observation, membership: Membership) -> bool:
    """Return whether the cluster exists, or may begin to exist at any moment."""
    return observed.initialized or any(
        host.roles.etcd and host.planned and (host.init or membership.of(host) is not None) for host in observed.hosts
    )


def unready(host: ObservedHost) -> str:
    """Return why a host cannot be given a plan yet; empty if it can."""
    if host.deleting:
        return "is being deleted"
    if host.failed:
        return f"has failed: {host.failed}"
    if not host.infrastructure_ready:
        return _first(host.waits) or "its infrastructure is not ready"
    if not host.connected:
        return _first(host.waits) or "its agent has not connected yet"
    return "" if host.report.secret else "it has no plan Secret yet"


def wait_for_candidate(observed: Observation, membership: Membership, election: Election) -> Wait:
    begun = is_begun(observed, membership)
    each = "; ".join(f"{name}: {why}" for name, why in sorted(election.rejected.items()))
    cluster = observed.cluster
    return Wait(
        reason="WaitingForInitNode",
        on=f"RKEControlPlane {cluster.namespace}/{cluster.name}",
        missing=f"no machine can {'take over as' if begun else 'be'} the init node "
        f"({each or 'there is no machine with the role etcd'})",
        since=cluster.created,
        then="the planner elects the first machine that can",
    )


def _against(host: ObservedHost, begun: bool, observed: Observation, membership: Membership) -> str:
    if why := unready(host):
        return why
    if not begun or membership.votes(host):
        return ""
    if not membership.views and observed.initialized and progress.was_ever_applied(host):
        return ""
    return "is not a voting member of the existing cluster: it would begin a second one"


def _keeps(host: ObservedHost, begun: bool, membership: Membership) -> bool:
    """Return whether a marked host keeps the mark. Once it has its plan, it loses the mark only if it is deleted, has
    failed, or the other members do not list it."""
    if host.deleting or host.failed:
        return False
    if not host.planned:
        return not begun and not unready(host)
    return not membership.views or membership.of(host) is not None


def _best(hosts: Sequence[ObservedHost], membership: Membership) -> ObservedHost:
    def place(host: ObservedHost) -> tuple[bool, bool, float, str]:
        member = membership.of(host)
        return member is None or not membership.is_sound(member), not host.init, host.created, host.name

    return min(hosts, key=place)


def _designated(machine_id: str, candidates: Sequence[ObservedHost]) -> ObservedHost | None:
    return next((host for host in candidates if host.machine_id == machine_id), None)


def _only(machine_id: str, designated: ObservedHost | None, rejected: Mapping[str, str]) -> Mapping[str, str]:
    if designated is None:
        return {f"machine id {machine_id}": "the user chose it, but no etcd machine has this id"}
    return {designated.name: rejected[designated.name]}


def _first(waits: Sequence[Wait]) -> str:
    return waits[0].missing if waits else ""


# ---- the initial machines -----------------------------------------------------------------------------------------


class InitialMachines(msgspec.Struct, frozen=True):
    """State of the machines that were first requested: the cluster begins when they exist."""

    wait: Wait | None = None  # None: it may begin
    missing: str = ""  # whom it begins without
    until: float | None = None  # when it begins in any case


def initial_machines_ready(observed: Observation) -> InitialMachines:
    lacking = [role for role, held in _roles(observed) if not held]
    if lacking:
        return InitialMachines(
            _machines_wait(observed, "WaitingForMachines", f"no machine has the role {' or '.join(lacking)} yet")
        )
    missing = "; ".join(filter(None, (_missing(observed, pool) for pool in observed.pools)))
    if not missing:
        return InitialMachines()
    ready = [h.connected_since or h.created for h in observed.hosts if h.roles.etcd and not unready(h)]
    until = min(ready) + GRACE_SECONDS if ready else None
    if until is not None and observed.now >= until:
        return InitialMachines(missing=missing)
    then = "the cluster begins when they are ready" + (
        f", or {GRACE_SECONDS / 60:.0f} minutes after the first etcd machine is ready" if until is None else ""
    )
    wait = _machines_wait(observed, "WaitingForMachines", missing, then=then, until=until)
    return InitialMachines(wait, missing, until)


def roles_are_held(observed: Observation) -> bool:
    """Return whether each role has at least one Machine that is not being deleted."""
    staying = [host.roles for host in observed.hosts if not host.deleting]
    return all(any(getattr(roles, role) for roles in staying) for role in ("etcd", "control_plane", "worker"))


def _roles(observed: Observation) -> list[tuple[str, bool]]:
    staying = [host.roles for host in observed.hosts if not host.deleting]
    return [("etcd", any(r.etcd for r in staying)), ("control plane", any(r.control_plane for r in staying))]


def _missing(observed: Observation, pool: Pool) -> str:
    hosts = [host for host in observed.hosts if host.pool == pool.name and not host.deleting]
    waiting = [f"{host.name}: {why}" for host in hosts if (why := unready(host))]
    unmade = max(pool.replicas - len(hosts), 0)
    if len(hosts) - len(waiting) >= pool.replicas:
        return ""
    unmade_words = [f"{unmade} not created yet"] if unmade else []
    return f"pool {pool.name}: {len(hosts) - len(waiting)} of {pool.replicas} ({', '.join((*waiting, *unmade_words))})"


def _machines_wait(
    observed: Observation, reason: str, missing: str, *, then: str = "", until: float | None = None
) -> Wait:
    cluster = observed.cluster
    if until is not None:
        then = f"{then}, or at {clock.rfc3339(until)} without them"
    on = f"RKEControlPlane {cluster.namespace}/{cluster.name}"
    return Wait(reason=reason, on=on, missing=missing, since=cluster.created, then=then)
