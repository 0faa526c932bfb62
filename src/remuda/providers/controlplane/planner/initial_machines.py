"""Before a cluster begins: it waits for the Machines that were first asked for, and names those that are missing.

Not for ever: when the first host that could begin it has been ready for a stated time, the cluster begins without those
that are missing or have failed.
"""

from __future__ import annotations

import msgspec

from remuda.kube.wait import Wait
from remuda.providers.controlplane.planner.election import unready
from remuda.providers.controlplane.planner.observation import Host, Observed, Pool

GRACE_SECONDS = 600.0  # from when the first etcd host is ready


class InitialMachines(msgspec.Struct, frozen=True):
    """State of the machines that were first requested: the cluster begins when they exist."""

    wait: Wait | None = None  # None: it may begin
    missing: str = ""  # whom it begins without
    until: float | None = None  # when it begins in any case


def initial_machines_ready(observed: Observed) -> InitialMachines:
    lacking = [role for role, held in _roles(observed) if not held]
    if lacking:
        return InitialMachines(
            _wait(observed, "WaitingForMachines", f"no machine has the role {' or '.join(lacking)} yet")
        )
    missing = "; ".join(filter(None, (_missing(observed, pool) for pool in observed.pools)))
    if not missing:
        return InitialMachines()
    ready = [h.connected_since or h.created for h in observed.hosts if h.roles.etcd and not unready(h)]
    until = min(ready) + GRACE_SECONDS if ready else None
    if until is not None and observed.now >= until:
        return InitialMachines(missing=missing)
    then = "the cluster begins when they are ready" + (
        f", and {GRACE_SECONDS / 60:.0f} minutes after the first etcd machine is ready in any case"
        if until is None
        else ""
    )
    wait = _wait(observed, "WaitingForMachines", missing, then=then, until=until)
    return InitialMachines(wait, missing, until)


def roles_are_held(observed: Observed) -> bool:
    """At least one Machine of each role that stays."""
    staying = [host.roles for host in observed.hosts if not host.deleting]
    return all(any(getattr(roles, role) for roles in staying) for role in ("etcd", "control_plane", "worker"))


def _roles(observed: Observed) -> list[tuple[str, bool]]:
    staying = [host.roles for host in observed.hosts if not host.deleting]
    return [("etcd", any(r.etcd for r in staying)), ("control plane", any(r.control_plane for r in staying))]


def _missing(observed: Observed, pool: Pool) -> str:
    hosts = [host for host in observed.hosts if host.pool == pool.name and not host.deleting]
    waiting = [f"{host.name} {why}" for host in hosts if (why := unready(host))]
    unmade = max(pool.replicas - len(hosts), 0)
    if len(hosts) - len(waiting) >= pool.replicas:
        return ""
    unmade_words = [f"{unmade} not made yet"] if unmade else []
    return f"pool {pool.name}: {len(hosts) - len(waiting)} of {pool.replicas} ({', '.join((*waiting, *unmade_words))})"


def _wait(observed: Observed, reason: str, missing: str, *, then: str = "", until: float | None = None) -> Wait:
    from remuda.kube import clock

    cluster = observed.cluster
    if until is not None:
        then = f"{then}, at the latest at {clock.rfc3339(until)} without them"
    on = f"RKEControlPlane {cluster.namespace}/{cluster.name}"
    return Wait(reason=reason, on=on, missing=missing, since=cluster.created, then=then)


def is_ready(host: Host) -> bool:
    return not unready(host)
