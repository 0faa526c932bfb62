"""Health of a running cluster. Pure: no I/O, the clock is an argument.

All kinds of clusters derive their status from `judge`: the control plane its Ready, which the declared and the
management Cluster copy, and Cluster API's Cluster its Available. The evidence is the same for all of them: the
connection to the API server, the control plane's own condition, and the conditions of Machines. So they agree.

Invariants:
- True requires recent observations: the API server has answered within a minute, and Nodes are ready according to the
  cluster's own controllers, which watch the Leases of the kubelets.
- While the API server does not answer, everything that was read from it is stale: the verdict is Unknown, unless a
  failure is known from another source.
- A manager that has just started knows nothing: the previous verdict stands until the API server has answered, or for
  a minute.
- This module does not judge whether a cluster matches its spec. A Machine that waits for its first Node is not ill.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remuda.capi.types import Machine
from remuda.kube import clock
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN, find
from remuda.kube.objects import Condition
from remuda.runtime.remote import Connection

SILENT_SECONDS = 60.0  # an API that has not answered for this long may be dead
JOINING_SECONDS = 600.0  # a Machine this young may have a Node that has not become ready yet

API_SILENT = "APISilent"
WAITING_FOR_API = "WaitingForAPI"
MACHINE_FAILED = "MachineFailed"
SERVER_LOST = "ServerLost"
NODE_LOST = "NodeLost"
NODE_NOT_READY = "NodeNotReady"
_STALLED = "Stalled"  # reason of a provider that makes no further attempt
_MOST_NAMED = 3
_LONGEST = 400  # characters of a quoted message


class Trouble(msgspec.Struct, frozen=True, order=True):
    """Failure of one Machine, as its conditions show it."""

    rank: int  # the most severe first
    name: str
    reason: str
    message: str
    by_api: bool = False  # read from the cluster's API server: stale while it does not answer


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Observations that a verdict is derived from."""

    now: float
    built: bool  # the API has answered once; before that only a permanent failure counts
    connection: Connection = Connection()
    control_plane: Condition | None = None  # the control plane's own Available condition
    machines: Sequence[Machine] = ()  # Machines of the cluster
    before: Condition | None = None  # the last verdict, of this or an earlier manager


class HealthVerdict(msgspec.Struct, frozen=True):
    status: str
    reason: str = ""
    message: str = ""  # one line
    look_again: float | None = None  # seconds until the verdict changes without an event
    stands: bool = False  # the previous verdict, because nothing is known yet

    @property
    def good(self) -> bool:
        return self.status == TRUE


ALIVE = HealthVerdict(TRUE)


def judge(seen: Evidence) -> HealthVerdict:
    return msgspec.structs.replace(_verdict(seen), look_again=_look_again(seen))


def _verdict(seen: Evidence) -> HealthVerdict:
    own = seen.control_plane
    if seen.built and own is not None and own.status == FALSE:
        return HealthVerdict(FALSE, own.reason, first_line(own.message))
    troubles = sorted(filter(None, (_trouble(one, seen.now) for one in seen.machines)))
    failures = [one for one in troubles if not one.by_api and (seen.built or one.reason == MACHINE_FAILED)]
    if failures:
        return _of_machines(failures)
    if not seen.built:
        return ALIVE
    if is_silent(seen.connection, seen.now):
        return HealthVerdict(UNKNOWN, API_SILENT, _silence(seen.connection))
    if seen.connection.last_success is None:
        return _unasked(seen.before)
    reported = [one for one in troubles if one.by_api]
    if reported:
        return _of_machines(reported)
    if own is not None and own.status == UNKNOWN:
        return HealthVerdict(UNKNOWN, own.reason, first_line(own.message))
    return ALIVE


def _unasked(before: Condition | None) -> HealthVerdict:
    if before is not None and before.status in (TRUE, FALSE):
        return HealthVerdict(before.status, before.reason, before.message, stands=True)
    return HealthVerdict(UNKNOWN, WAITING_FOR_API, "the API server has not answered this manager yet")


def _look_again(seen: Evidence) -> float | None:
    moments = [heard(seen.connection) + SILENT_SECONDS] if _is_in_doubt(seen.connection) else []
    moments += [_made(one) + JOINING_SECONDS for one in seen.machines if _is_joining(one, seen.now)]
    return min((at - seen.now for at in moments if seen.now < at < float("inf")), default=None)


def _of_machines(troubles: Sequence[Trouble]) -> HealthVerdict:
    """Return a verdict of one line: the gravest trouble in full, the others by name."""
    first, others = troubles[0], troubles[1:]
    named = ", ".join(one.name for one in others[:_MOST_NAMED])
    rest = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    more = f"; also {named}{rest}" if others else ""
    return HealthVerdict(FALSE, first.reason, f"Machine {first.name}: {first.message}{more}")


# ---- the API


def is_silent(connection: Connection, now: float) -> bool:
    """Return whether the API has not answered for a minute of requests. A working connection is not silent, even if
    many clusters are probed and each is probed more rarely.
    """
    return _is_in_doubt(connection) and now - heard(connection) >= SILENT_SECONDS


def heard(connection: Connection) -> float:
    """Return when the API answered last; if it never did, since when it has been asked."""
    if connection.last_success is not None:
        return connection.last_success
    return connection.since if connection.since is not None else float("inf")


def _is_in_doubt(connection: Connection) -> bool:
    return not connection.connected or connection.failures > 0


def _silence(connection: Connection) -> str:
    verb = "has not answered since" if connection.last_success is not None else "has never answered, first asked at"
    return f"API {verb} {clock.rfc3339(heard(connection))}: {first_line(connection.error) or 'no error was reported'}"


# ---- Machines


def _trouble(machine: Machine, now: float) -> Trouble | None:
    """Return what is wrong with a Machine that stays."""
    if machine.metadata.deleting:
        return None
    return _of_server(machine) or _of_node(machine, now)


def health_problem(machine: Machine) -> str:
    """Return the reason of a Machine's problem, whatever its age; empty: no problem."""
    found = _trouble(machine, float("inf"))
    return found.reason if found is not None else ""


def _of_server(machine: Machine) -> Trouble | None:
    name = machine.metadata.name
    for type in ("InfrastructureReady", "BootstrapConfigReady"):
        found = find(machine.status.conditions, type)
        if found is not None and found.status == FALSE and found.reason == _STALLED:
            return Trouble(0, name, MACHINE_FAILED, _since(found, first_line(found.message)))
    found = find(machine.status.conditions, "InfrastructureReady")
    if found is None or found.status != FALSE or not machine.status.initialization.infrastructure_provisioned:
        return None
    return Trouble(1, name, SERVER_LOST, _since(found, first_line(found.message) or found.reason))


def _of_node(machine: Machine, now: float) -> Trouble | None:
    found = find(machine.status.conditions, "NodeReady")
    node = machine.status.node_ref
    if found is None or node is None or found.status == TRUE:
        return None
    name, message = machine.metadata.name, node_message(found)
    if found.reason == "NodeDeleted":
        return Trouble(2, name, NODE_LOST, _since(found, message), by_api=True)
    if found.reason == "NodeReadyUnknown":
        return Trouble(3, name, NODE_NOT_READY, _since(found, _not_ready(node.name, message)), by_api=True)
    if found.status == FALSE and not _is_joining(machine, now):
        return Trouble(4, name, NODE_NOT_READY, _since(found, _not_ready(node.name, message)), by_api=True)
    return None


def _is_joining(machine: Machine, now: float) -> bool:
    """Return whether its Node may not have become ready for the first time: its network is being set up."""
    node = find(machine.status.conditions, "NodeReady")
    return node is not None and node.status == FALSE and now < _made(machine) + JOINING_SECONDS


def _made(machine: Machine) -> float:
    made = machine.metadata.creation_timestamp
    return clock.parse(made) if made else 0.0


def _not_ready(node: str, message: str) -> str:
    return f"Node {node} is not ready" + (f": {message}" if message else "")


def _since(found: Condition, message: str) -> str:
    return f"{message} (since {found.last_transition_time})" if found.last_transition_time else message


def node_message(found: Condition) -> str:
    """Return the message of a Machine's NodeReady, without the mark of a list."""
    return first_line(found.message).removeprefix("* Node.Ready: ")


def first_line(message: str) -> str:
    line = message.partition("\n")[0]
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
