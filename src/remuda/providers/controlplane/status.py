"""What an RKEControlPlane and its Machines say, derived from what was observed and decided. Pure.

The same facts give the same bytes, so a run that finds nothing new writes nothing. Waits are told in the words they
have everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from remuda.kube import conditions
from remuda.kube.conditions import UNKNOWN, condition
from remuda.kube.objects import Condition
from remuda.kube.waits import Wait
from remuda.providers.controlplane.authorities import Authorities
from remuda.providers.controlplane.distros import BadVersion, Version, parse_version
from remuda.providers.controlplane.planner import membership
from remuda.providers.controlplane.planner.decision import Decision, HostStatus
from remuda.providers.controlplane.planner.membership import Membership
from remuda.providers.controlplane.planner.observed import Host, Observed
from remuda.providers.controlplane.types import (
    AVAILABLE,
    BOOTSTRAPPED,
    CERTIFICATES_AVAILABLE,
    HELD,
    PLAN_APPLIED,
    PROVISIONED,
    READY,
    RECONCILED,
    RECONCILED_MACHINE,
    ROLLING_OUT,
    SCALING_DOWN,
    SCALING_UP,
    STABLE,
)

WAITING = "Waiting"
_MOST_WAITS = 5
_UNTIL_NOW = (AVAILABLE, PROVISIONED, BOOTSTRAPPED, STABLE)  # kept as they were where nothing could be decided


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what it is derived from."""

    observed: Observed
    decision: Decision
    authorities: Authorities
    held: Sequence[Wait] = ()  # what those who act have not done
    foreign_kubeconfig: bool = False
    error: str = ""  # what went wrong with an act


def derive(seen: Judged) -> list[Condition]:
    observed, decision = seen.observed, seen.decision
    return [
        _available(observed, decision),
        *_scaling(observed),
        _rolling_out(observed, decision),
        *_as_it_shall_be(decision),
        condition(STABLE, decision.stable, "Stable" if decision.stable else "EtcdLost", _told(decision.held)),
        _flag(PROVISIONED, decision.provisioned, "each role has a machine", "a role has no machine yet"),
        _flag(BOOTSTRAPPED, decision.bootstrapped, "", "no server has begun the cluster yet"),
        _certificates(seen),
        _held((*decision.held, *seen.held)),
    ]


def undecided(present: Sequence[Condition], wait: Wait) -> list[Condition]:
    """Of a control plane nothing could be decided of: what it waits for; what was known before still stands."""
    waiting = [condition(type, UNKNOWN, wait.reason, str(wait)) for type in (READY, RECONCILED)]
    known = {one.type for one in present}
    first = [condition(type, False, wait.reason, str(wait)) for type in _UNTIL_NOW if type not in known]
    moving = [condition(type, False, f"Not{type}") for type in (SCALING_UP, SCALING_DOWN, ROLLING_OUT)]
    return [*waiting, *first, *(one for one in moving if one.type not in known)]


def _available(observed: Observed, decision: Decision) -> Condition:
    if not (observed.initialized or decision.initialized):
        why = _told(decision.waits[:1]) or decision.stage
        return condition(AVAILABLE, False, "NotInitialized", why)
    if serving(observed.hosts):
        return condition(AVAILABLE, True, "Available")
    away = ", ".join(host.name for host in observed.hosts if host.roles.control_plane) or "there is none"
    return condition(AVAILABLE, False, "NoServer", f"no control plane node is healthy: {away}")


def serving(hosts: Iterable[Host]) -> list[Host]:
    """Whose API server answers its probe, those that stay first. A host that has died says nothing new, and the last it
    said is that it is well: that the other members of etcd call it dead counts more."""
    present = list(hosts)
    members = membership.gather(present)
    found = [
        host
        for host in present
        if host.roles.control_plane and host.report.applied and host.report.probes and all(host.report.probes.values())
    ]
    return sorted((one for one in found if not _is_down(members, one)), key=lambda host: host.deleting)


def _is_down(members: Membership, host: Host) -> bool:
    member = members.of(host)
    return member is not None and members.is_down(member)


def _scaling(observed: Observed) -> list[Condition]:
    wanted = sum(pool.replicas for pool in observed.pools if pool.roles.server)
    pooled = [host for host in observed.hosts if host.roles.server and host.pool]
    staying = [host for host in pooled if not host.deleting]
    going = [host for host in observed.hosts if host.roles.server and host.deleting]
    up = len(staying) < wanted
    missing = f"{len(staying)} of {wanted} servers are there" if up else ""
    down = bool(going) or len(staying) > wanted
    named = ", ".join(host.name for host in going)
    return [
        condition(SCALING_UP, up, SCALING_UP if up else f"Not{SCALING_UP}", missing),
        condition(
            SCALING_DOWN, down, SCALING_DOWN if down else f"Not{SCALING_DOWN}", f"leaving: {named}" if named else ""
        ),
    ]


def _rolling_out(observed: Observed, decision: Decision) -> Condition:
    behind = [
        host.name
        for host in observed.hosts
        if host.report.applied and not host.deleting and not _status_of(decision, host).up_to_date
    ]
    if not behind:
        return condition(ROLLING_OUT, False, f"Not{ROLLING_OUT}")
    return condition(ROLLING_OUT, True, ROLLING_OUT, f"not as they shall be yet: {', '.join(behind)}")


def _as_it_shall_be(decision: Decision) -> list[Condition]:
    if not decision.waits:
        return [condition(READY, True, READY), condition(RECONCILED, True, RECONCILED)]
    reason, waits = decision.waits[0].reason, _told(decision.waits)
    return [
        condition(READY, UNKNOWN, reason, "\n".join(filter(None, (decision.stage, waits)))),
        condition(RECONCILED, UNKNOWN, reason, waits),
    ]


def _certificates(seen: Judged) -> Condition:
    found = seen.authorities
    if found.problems:
        return condition(CERTIFICATES_AVAILABLE, False, found.problems[0].reason, _told(found.problems))
    notes = [found.expiring] if found.expiring else []
    if seen.foreign_kubeconfig:
        notes.append("the Secret with the kubeconfig is somebody else's: it is neither renewed nor pointed elsewhere")
    return condition(CERTIFICATES_AVAILABLE, True, "Available", "; ".join(notes))


def _held(waits: Sequence[Wait]) -> Condition:
    if not waits:
        return condition(HELD, False, "NothingHeld")
    return condition(HELD, True, waits[0].reason, _told(waits))


def _flag(type: str, holds: bool, yes: str, no: str) -> Condition:
    return condition(type, holds, type if holds else f"Not{type}", yes if holds else no)


def _told(waits: Sequence[Wait]) -> str:
    shown = [str(wait) for wait in waits[:_MOST_WAITS]]
    if len(waits) > _MOST_WAITS:
        shown.append(f"and {len(waits) - _MOST_WAITS} more")
    return "\n".join(shown)


def _status_of(decision: Decision, host: Host) -> HostStatus:
    return decision.hosts.get(host.name) or HostStatus(phase="waiting")


def lowest_version(hosts: Iterable[Host]) -> str:
    """That a node runs; empty if none is known."""
    found: list[Version] = []
    for host in hosts:
        if host.node is not None and host.node.kubelet_version:
            try:
                found.append(parse_version(host.node.kubelet_version))
            except BadVersion:
                continue
    return min(found).text if found else ""


# ---- of a Machine ------------------------------------------------------------------------------------------------


def of_machine(host: Host, status: HostStatus) -> list[Condition]:
    """Nothing before there is a server: until then its infrastructure tells all there is."""
    if not host.infrastructure_ready:
        return []
    done = status.phase == "ready" and status.up_to_date
    wait = status.wait
    found = [condition(RECONCILED_MACHINE, True, RECONCILED_MACHINE)] if done else []
    if not done and wait is not None:
        found = [condition(RECONCILED_MACHINE, UNKNOWN, WAITING, str(wait))]
    report = host.report
    if report.plan and report.state == "succeeded":
        found.append(condition(PLAN_APPLIED, True, PLAN_APPLIED))
    elif report.plan and report.state == "failed":
        message = report.failed_message or "the host does not say why"
        found.append(condition(PLAN_APPLIED, False, "Error", f"attempt {report.failures} failed: {message}"))
    return found


def same(present: Sequence[Condition], news: Sequence[Condition]) -> bool:
    for one in news:
        before = conditions.find(present, one.type)
        if before is None or (before.status, before.reason, before.message) != (one.status, one.reason, one.message):
            return False
    return True
