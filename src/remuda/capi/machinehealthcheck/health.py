"""Health of one Machine, without I/O: healthy, unhealthy with a reason, or undecided until some time.

Missing information never counts against a Machine. While the Nodes of a cluster cannot be read, neither they nor
conditions that only report this are used. When they can be read again, a failure of a Node counts from then on: the
outage may have cut off the Node as well as the manager. A Machine is not unhealthy because its cluster is not ready for
it. A failure within its timeout makes a Machine undecided, not unhealthy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from remuda.capi import names
from remuda.capi.types import Cluster, Machine
from remuda.capi.types.machinehealthcheck import HealthChecks, UnhealthyMachineCondition, UnhealthyNodeCondition
from remuda.kube import clock
from remuda.kube.conditions import find, is_true
from remuda.kube.objects import Condition

DEFAULT_NODE_STARTUP_SECONDS = 600  # upstream's default

_CONNECTION_DOWN = "ConnectionDown"  # reason of a Machine's condition if its Node cannot be read


class NodeFacts(NamedTuple):
    name: str
    conditions: Sequence[Condition]


class Facts(NamedTuple):
    machine: Machine
    cluster: Cluster
    node: NodeFacts | None
    nodes_readable: bool  # whether a Node that was not found certainly does not exist
    readable_since: float = 0.0  # when Nodes could be read again after an outage


class Healthy(NamedTuple):
    """No check fails, and the Machine has a Node."""


class Unhealthy(NamedTuple):
    reason: str
    message: str


class Pending(NamedTuple):
    """Undecided: it starts, ends, is in doubt until `check_at`, or cannot be observed (then its last
    verdict counts).
    """

    why: str
    check_at: float | None = None
    counts_as_healthy: bool = False


Verdict = Healthy | Unhealthy | Pending


class _Findings(NamedTuple):
    complaints: Sequence[Unhealthy] = ()
    expiries: Sequence[float] = ()

    def __or__(self, other: _Findings) -> _Findings:
        return _Findings((*self.complaints, *other.complaints), (*self.expiries, *other.expiries))


def judge(facts: Facts, checks: HealthChecks, now: float) -> Verdict:
    """Return the verdict, with all findings in its message and the reason of the first one."""
    machine = facts.machine
    if machine.metadata.deleting:
        return Pending("it is being deleted")
    if names.REMEDIATE_MACHINE in machine.metadata.annotations:
        return Unhealthy("HasRemediateAnnotation", f"Remediation requested by annotation {names.REMEDIATE_MACHINE}")
    if hold := _cluster_not_ready_for(machine, facts.cluster):
        return Pending(hold)
    findings = _machine_findings(machine, checks.unhealthy_machine_conditions, now) | _node_findings(facts, checks, now)
    return _verdict(facts, findings)


def _verdict(facts: Facts, findings: _Findings) -> Verdict:
    if findings.complaints:
        return Unhealthy(findings.complaints[0].reason, _joined(one.message for one in findings.complaints))
    if findings.expiries:
        return Pending("it may become unhealthy", min(findings.expiries))
    if not _judged_by_node(facts):
        last = is_true(facts.machine.status.conditions, "HealthCheckSucceeded")
        return Pending("its Node cannot be read", counts_as_healthy=last)
    return Healthy() if facts.node is not None else Pending("it has no Node")


def _cluster_not_ready_for(machine: Machine, cluster: Cluster) -> str:
    conditions = cluster.status.conditions
    if not is_true(conditions, "ControlPlaneInitialized") and not machine.is_control_plane:
        return "the control plane is not initialized"
    if not is_true(conditions, "InfrastructureReady"):
        return "the infrastructure of the Cluster is not ready"
    return ""


def _judged_by_node(facts: Facts) -> bool:
    """Judge a Machine by its Node. Before the control plane is initialized, only a missing Node can be observed."""
    return facts.nodes_readable or not is_true(facts.cluster.status.conditions, "ControlPlaneInitialized")


def _machine_findings(machine: Machine, checks: Sequence[UnhealthyMachineCondition], now: float) -> _Findings:
    relevant = [one for one in machine.status.conditions if one.reason != _CONNECTION_DOWN]
    return _overdue("UnhealthyMachine", "Machine", relevant, checks, _created(machine), now)


def _node_findings(facts: Facts, checks: HealthChecks, now: float) -> _Findings:
    machine, node = facts.machine, facts.node
    if not _judged_by_node(facts):
        return _Findings()
    if node is not None:
        conditions = checks.unhealthy_node_conditions
        created, seen = _created(machine), facts.readable_since
        return _overdue("UnhealthyNode", f"Node {node.name}", node.conditions, conditions, created, now, seen)
    if machine.status.node_ref is not None and facts.nodes_readable:
        name = machine.status.node_ref.name
        return _Findings([Unhealthy("NodeDeleted", f"Node {name} has been deleted while the Machine still exists")])
    return _startup(facts, checks.node_startup_timeout_seconds, now)


def _startup(facts: Facts, timeout: int | None, now: float) -> _Findings:
    seconds = DEFAULT_NODE_STARTUP_SECONDS if timeout is None else timeout
    if seconds == 0:
        return _Findings()
    expiry = max(_may_start_since(facts.machine, facts.cluster), facts.readable_since) + seconds
    if now < expiry:
        return _Findings(expiries=[expiry])
    return _Findings([Unhealthy("NodeStartupTimeout", f"No Node has appeared within {_duration(seconds)}")])


def _may_start_since(machine: Machine, cluster: Cluster) -> float:
    """Return the time from which a Machine could start: everything that it needs exists since then."""
    needed = [
        find(cluster.status.conditions, "ControlPlaneInitialized"),
        find(cluster.status.conditions, "InfrastructureReady"),
        find(machine.status.conditions, "InfrastructureReady"),
    ]
    created = _created(machine)
    return max([created, *(_since(one, created) for one in needed if one is not None and one.status == "True")])


def _overdue(
    reason: str,
    subject: str,
    conditions: Sequence[Condition],
    checks: Sequence[UnhealthyMachineCondition | UnhealthyNodeCondition],
    earliest: float,
    now: float,
    seen_since: float = 0.0,
) -> _Findings:
    """Return the conditions that have failed for longer than their timeout. `earliest`: since when, if a condition does
    not say it. `seen_since`: failures count from then on."""
    complaints, expiries = [], []
    for check in checks:
        found = find(conditions, check.type)
        if found is None or found.status != check.status:
            continue
        expiry = max(_since(found, earliest), seen_since) + check.timeout_seconds
        if now < expiry:
            expiries.append(expiry)
        else:
            complaints.append(Unhealthy(reason, _complaint(subject, found, check.timeout_seconds)))
    return _Findings(complaints, expiries)


def _complaint(subject: str, found: Condition, seconds: int) -> str:
    because = f" ({found.reason})" if found.reason else ""
    return f"{subject}: {found.type} has been {found.status}{because} for more than {_duration(seconds)}"


def _joined(messages: Iterable[str]) -> str:
    lines = list(dict.fromkeys(messages))
    return lines[0] if len(lines) == 1 else "\n".join(f"* {line}" for line in lines)


def _created(machine: Machine) -> float:
    return _parsed(machine.metadata.creation_timestamp or "", 0.0)


def _since(condition: Condition, otherwise: float) -> float:
    """Return the transition time of the condition; `otherwise` if its writer has not set one."""
    return _parsed(condition.last_transition_time, otherwise)


def _parsed(text: str, otherwise: float) -> float:
    try:
        return clock.parse(text)
    except ValueError:
        return otherwise


def _duration(seconds: int) -> str:
    """Format a duration as in specs and logs: `90` → 1m30s."""
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    parts = [f"{amount}{unit}" for amount, unit in ((hours, "h"), (minutes, "m"), (left, "s")) if amount]
    return "".join(parts) or "0s"
