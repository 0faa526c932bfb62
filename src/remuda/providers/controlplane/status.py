"""Status of an RKEControlPlane and its Machines, derived from the observation and the decision. Pure.

The same facts give the same bytes, so a run that finds nothing new writes nothing. Waits have the same wording here as
everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from remuda.capi import health
from remuda.capi.health import Evidence, HealthVerdict
from remuda.capi.types import Machine
from remuda.kube import conditions
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN, condition
from remuda.kube.objects import Condition
from remuda.kube.wait import Wait
from remuda.providers.controlplane.authorities import Authorities
from remuda.providers.controlplane.planner import membership, progress
from remuda.providers.controlplane.planner.decision import Decision, HostStatus
from remuda.providers.controlplane.planner.membership import Membership
from remuda.providers.controlplane.planner.observation import Observation, ObservedHost
from remuda.providers.controlplane.planner.quorum import QUORUM_LOST
from remuda.providers.shared.distros import BadVersion, Version, parse_version
from remuda.providers.shared.names import STALLED
from remuda.providers.shared.types.controlplane import (
    AVAILABLE,
    BOOTSTRAPPED,
    CERTIFICATES_AVAILABLE,
    HELD,
    NO_SERVER,
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
from remuda.runtime.remote import Connection

WAITING = "Waiting"
_MOST_WAITS = 5
_NOT_INITIALIZED = "NotInitialized"
# Reasons of Ready that no controller can end: a lost cluster, an invalid spec, and inputs that a user must provide.
NEEDS_PERSON = frozenset(
    {
        *("EtcdLost", QUORUM_LOST, health.MACHINE_FAILED),
        *("InvalidSpec", "MissingInput", "BadAuthority", "TokensLost", "BadAnnotation"),
        *("NoArtefacts", "ImagesMissing"),
    }
)
_UNTIL_NOW = (AVAILABLE, PROVISIONED, BOOTSTRAPPED, STABLE)  # kept as they were where nothing could be decided


class ControlPlaneStatusInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of the status in one reconcile."""

    observed: Observation
    decision: Decision
    authorities: Authorities
    connection: Connection = Connection()
    machines: Sequence[Machine] = ()
    before: Sequence[Condition] = ()  # previous conditions of the control plane
    held: Sequence[Wait] = ()  # acts that were not carried out
    foreign_kubeconfig: bool = False
    error: str = ""  # what went wrong with an act


class ControlPlaneReport(msgspec.Struct, frozen=True):
    conditions: Sequence[Condition]
    look_again: float | None = None  # in so many seconds time alone changes the answer


def derive(seen: ControlPlaneStatusInputs) -> ControlPlaneReport:
    observed, decision = seen.observed, seen.decision
    available = _available(seen)
    alive = _alive(seen, available)
    ready = _ready(seen, alive)
    return ControlPlaneReport(
        [
            available,
            *_scaling(observed),
            _rolling_out(observed, decision),
            ready,
            _stalled(ready, decision.lost),
            _reconciled(decision),
            _stable(decision),
            _flag(PROVISIONED, decision.provisioned, "each role has a machine", "a role has no machine yet"),
            _flag(BOOTSTRAPPED, decision.bootstrapped, "", "no server has initialized the cluster yet"),
            _certificates(seen),
            _held((*decision.held, *seen.held)),
        ],
        alive.look_again,
    )


def _stalled(ready: Condition, lost: Wait | None = None) -> Condition:
    """Return whether only a person can help: kstatus, and the tools that use it, stop waiting then."""
    if ready.reason in NEEDS_PERSON:
        message = str(lost) if lost is not None else health.first_line(ready.message)
        return condition(STALLED, True, ready.reason, message)
    return condition(STALLED, False, "NotStalled")


def _stable(decision: Decision) -> Condition:
    if decision.lost is not None:
        return condition(STABLE, False, decision.lost.reason, str(decision.lost))
    return condition(STABLE, True, STABLE, brief(decision.held))


def undecided(present: Sequence[Condition], wait: Wait) -> list[Condition]:
    """Return the conditions of a control plane without a decision: they report the wait and leave known conditions as
    is."""
    ready = condition(READY, False if wait.reason in NEEDS_PERSON else UNKNOWN, wait.reason, str(wait))
    waiting = [ready, _stalled(ready), condition(RECONCILED, UNKNOWN, wait.reason, str(wait))]
    known = {one.type for one in present}
    first = [condition(type, False, wait.reason, str(wait)) for type in _UNTIL_NOW if type not in known]
    moving = [condition(type, False, f"Not{type}") for type in (SCALING_UP, SCALING_DOWN, ROLLING_OUT)]
    return [*waiting, *first, *(one for one in moving if one.type not in known)]


def _available(seen: ControlPlaneStatusInputs) -> Condition:
    """Return whether the API is served, by the reports of servers and by probes from here."""
    observed, decision = seen.observed, seen.decision
    if not (observed.initialized or decision.initialized):
        return condition(AVAILABLE, False, _NOT_INITIALIZED, brief(decision.waits) or decision.stage)
    if decision.lost is not None:
        return condition(AVAILABLE, False, decision.lost.reason, str(decision.lost))
    if not serving(observed):
        away = ", ".join(host.name for host in observed.hosts if host.roles.control_plane) or "there is none"
        return condition(AVAILABLE, False, NO_SERVER, f"no control plane node is healthy: {away}")
    before = conditions.find(seen.before, AVAILABLE)
    if before is not None and before.reason == _NOT_INITIALIZED:
        before = None  # it is now
    found = health.judge(Evidence(now=observed.now, built=True, connection=seen.connection, before=before))
    return condition(AVAILABLE, found.status, found.reason or AVAILABLE, found.message)


def _alive(seen: ControlPlaneStatusInputs, available: Condition) -> HealthVerdict:
    observed = seen.observed
    return health.judge(
        Evidence(
            now=observed.now,
            built=observed.initialized or seen.decision.initialized,
            connection=seen.connection,
            control_plane=available,
            machines=seen.machines,
            before=conditions.find(seen.before, READY),
        )
    )


def serving(observed: Observation) -> list[ObservedHost]:
    """Return the hosts whose API server answers its probe, those that stay first. A host that has died reports nothing
    new, and its last report says that it is healthy: the other etcd members' report that it is down counts more. An API
    server that outlives its unit still serves while the unit restarts."""
    members = membership.gather(observed.hosts)
    unit = progress.unit_probe(observed.cluster)
    found = []
    for host in observed.hosts:
        probes = [healthy for name, healthy in host.report.probes.items() if name != unit]
        if host.roles.control_plane and host.report.applied and probes and all(probes):
            found.append(host)
    return sorted((one for one in found if not _is_down(members, one)), key=lambda host: host.deleting)


def _is_down(members: Membership, host: ObservedHost) -> bool:
    member = members.of(host)
    return member is not None and members.is_down(member)


def _scaling(observed: Observation) -> list[Condition]:
    wanted = sum(pool.replicas for pool in observed.pools if pool.roles.server)
    pooled = [host for host in observed.hosts if host.roles.server and host.pool]
    staying = [host for host in pooled if not host.deleting]
    going = [host for host in observed.hosts if host.roles.server and host.deleting]
    up = len(staying) < wanted
    missing = f"{len(staying)} of {wanted} servers exist" if up else ""
    down = bool(going) or len(staying) > wanted
    named = ", ".join(host.name for host in going)
    return [
        condition(SCALING_UP, up, SCALING_UP if up else f"Not{SCALING_UP}", missing),
        condition(
            SCALING_DOWN,
            down,
            SCALING_DOWN if down else f"Not{SCALING_DOWN}",
            f"being deleted: {named}" if named else "",
        ),
    ]


def _rolling_out(observed: Observation, decision: Decision) -> Condition:
    behind = [
        host.name
        for host in observed.hosts
        if host.report.applied and not host.deleting and not _status_of(decision, host).up_to_date
    ]
    if not behind:
        return condition(ROLLING_OUT, False, f"Not{ROLLING_OUT}")
    return condition(ROLLING_OUT, True, ROLLING_OUT, f"not up to date yet: {', '.join(behind)}")


def _ready(seen: ControlPlaneStatusInputs, alive: HealthVerdict) -> Condition:
    """Alive, and as declared. The one condition that has all waits: others have the first of them."""
    decision = seen.decision
    if alive.stands and (alive.status == FALSE or not decision.waits):
        return condition(READY, alive.status, alive.reason, alive.message)
    if not alive.good and not (alive.reason == health.WAITING_FOR_API and decision.waits):
        first = "" if decision.lost is not None else alive.message  # the waits begin with it
        return condition(READY, alive.status, alive.reason, _lines(first, decision.stage, _message_of(decision.waits)))
    waits = [*decision.waits, *_missing_machines(seen)]
    if not waits:
        return condition(READY, True, READY)
    return condition(READY, UNKNOWN, waits[0].reason, _lines(decision.stage, _message_of(waits)))


def _lines(*lines: str) -> str:
    return "\n".join(filter(None, lines))


def _missing_machines(seen: ControlPlaneStatusInputs) -> list[Wait]:
    """Machines that pools ask for, and Nodes of those that are there."""
    observed, found = seen.observed, []
    for pool in observed.pools:
        present = sum(host.pool == pool.name and not host.deleting for host in observed.hosts)
        if present < pool.replicas:
            missing = f"{present} of {pool.replicas} machines exist"
            found.append(Wait(reason="WaitingForMachines", on=f"pool {pool.name}", missing=missing))
    for machine in seen.machines:
        node = conditions.find(machine.status.conditions, "NodeReady")
        if not machine.metadata.deleting and (node is None or node.status != TRUE):
            missing = health.node_message(node) if node is not None and node.message else "has no Node yet"
            found.append(Wait(reason="WaitingForNode", on=f"Machine {machine.key}", missing=missing))
    return found


def _reconciled(decision: Decision) -> Condition:
    if not decision.waits:
        return condition(RECONCILED, True, RECONCILED)
    return condition(RECONCILED, UNKNOWN, decision.waits[0].reason, brief(decision.waits))


def _certificates(seen: ControlPlaneStatusInputs) -> Condition:
    found = seen.authorities
    if found.problems:
        return condition(CERTIFICATES_AVAILABLE, False, found.problems[0].reason, _message_of(found.problems))
    notes = [found.expiring] if found.expiring else []
    if seen.foreign_kubeconfig:
        notes.append("the kubeconfig Secret belongs to another owner: Remuda neither renews nor redirects it")
    return condition(CERTIFICATES_AVAILABLE, True, "Available", "; ".join(notes))


def _held(waits: Sequence[Wait]) -> Condition:
    if not waits:
        return condition(HELD, False, "NothingHeld")
    return condition(HELD, True, waits[0].reason, _message_of(waits))


def _flag(type: str, holds: bool, yes: str, no: str) -> Condition:
    return condition(type, holds, type if holds else f"Not{type}", yes if holds else no)


def brief(waits: Sequence[Wait]) -> str:
    """Return one line: the first wait, and how many there are beside it."""
    if not waits:
        return ""
    return str(waits[0]) + (f" (and {len(waits) - 1} more)" if len(waits) > 1 else "")


def _message_of(waits: Sequence[Wait]) -> str:
    shown = [str(wait) for wait in waits[:_MOST_WAITS]]
    if len(waits) > _MOST_WAITS:
        shown.append(f"and {len(waits) - _MOST_WAITS} more")
    return "\n".join(shown)


def _status_of(decision: Decision, host: ObservedHost) -> HostStatus:
    return decision.hosts.get(host.name) or HostStatus(phase="waiting")


def counts(seen: ControlPlaneStatusInputs) -> dict[str, Any]:
    """Return how many Machines the control plane has and what they run, by the fields of Cluster API's contract. What
    nobody can say now is left out: what was said of it stands."""
    servers = {host.name: host for host in seen.observed.hosts if host.roles.control_plane}
    machines = [one for one in seen.machines if one.metadata.name in servers]
    found: dict[str, Any] = {
        "replicas": len(machines),
        "readyReplicas": sum(conditions.is_true(one.status.conditions, "Ready") for one in machines),
        "availableReplicas": sum(conditions.is_true(one.status.conditions, "Available") for one in machines),
        "upToDateReplicas": sum(_status_of(seen.decision, host).up_to_date for host in servers.values()),
    }
    if running := _versions(servers.values()):
        found["versions"] = [{"version": one.text, "replicas": running.count(one)} for one in sorted(set(running))]
    if lowest := _versions(seen.observed.hosts):
        found["version"] = min(lowest).text
    return found


def _versions(hosts: Iterable[ObservedHost]) -> list[Version]:
    """Return what their nodes run, as far as that is known."""
    found: list[Version] = []
    for host in hosts:
        if host.node is not None and host.node.kubelet_version:
            try:
                found.append(parse_version(host.node.kubelet_version))
            except BadVersion:
                continue
    return found


# ---- of a Machine ------------------------------------------------------------------------------------------------


def of_machine(host: ObservedHost, status: HostStatus) -> list[Condition]:
    """Return the Machine's conditions; none before it has a server, because until then its infrastructure reports
    everything.
    """
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
        message = report.failed_message or "the host reports no cause"
        found.append(condition(PLAN_APPLIED, False, "Error", f"attempt {report.failures} failed: {message}"))
    return found


def same(present: Sequence[Condition], news: Sequence[Condition]) -> bool:
    for one in news:
        before = conditions.find(present, one.type)
        if before is None or (before.status, before.reason, before.message) != (one.status, one.reason, one.message):
            return False
    return True
