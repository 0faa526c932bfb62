"""The object of a cluster's tree that blocks the cluster, and the next step. Pure.

Lost quorum comes first, then objects that only a user can help, then other troubles, then objects that only wait.
Branches are in the order in which controllers hand over, so the first unhealthy branch is where the work stands:
following it down leads to the object that everything above it waits for. A deletion runs in reverse: machines, then the
control plane, then the infrastructure; it waits only for objects that are being deleted or in trouble.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from remuda.provisioning.tree import QUORUM_LOST, Branch, State, walk

Actor = Literal["user", "controller", "host"]

_MACHINES = ("MachineDeployment", "MachineSet", "Machine")
_ENDING: tuple[State, ...] = ("deleting", "paused")

# What comes next where an object says nothing of it, by its state.
_THEN: Mapping[State, str] = {
    "waiting": "the controller continues by itself when that is available",
    "unknown": "a controller reconciles it within seconds; if none does, the management plane is not running",
    "held": "revert the change, or allow its consequences",
    "stalled": "fix the cause that the message names",
    "paused": "the controller continues when it is no longer paused",
    "deleting": "the controller deletes it when that is done",
}
_BY_HOST = "the host continues by itself; if it does not, its log says why"
# Reasons of waits for the agent of a host, or for what the agent starts there.
_HOST_ACTS = frozenset(
    {
        *("WaitingForPlan", "PlanDelivered", "WaitingForProbes", "WaitingForEtcd", "WaitingForKubelet"),
        *("WaitingForNode", "WaitingForAgent", "WaitingForHost"),
    }
)
_LEADS: Mapping[Actor, str] = {"user": "you", "controller": "the controller", "host": "the host"}
_WITHOUT_QUORUM = "restart the servers that are down, or restore the cluster from a snapshot of etcd"
_RECOVERS = ("by itself", "automatically")  # in the wait of a control plane that promises to recover
_LOGS = ("see ", "its log: ")


def blocking(root: Branch) -> list[Branch]:
    """Return the chain from the root to what holds it up; empty when all is well.

    Where the last of it speaks of an object elsewhere in the tree that waits for something of its own, as a control
    plane does of machines whose servers are being made, the chain goes on there."""
    if lost := _deepest(root, lambda one: one.judgement.reason == QUORUM_LOST):
        return lost
    permanent = _deepest(root, lambda one: _is_permanent(root, one))
    chain = permanent or _deepest(root, lambda one: one.judgement.trouble) or _down(root)
    return [*chain, *_spoken_of(root, chain)] if chain else []


def _deepest(root: Branch, test: Callable[[Branch], bool]) -> list[Branch]:
    """Return the chain to the first that passes and has none below it that does."""
    for one in _in_order(root):
        if found := _deepest(one, test):
            return [root, *found]
    return [root] if test(root) else []


def _down(root: Branch) -> list[Branch]:
    if root.well:
        return []
    below = next((one for one in _in_order(root) if not one.well and _is_waited_for(root, one)), None)
    return [root] if below is None else [root, *_down(below)]


def _is_waited_for(root: Branch, below: Branch) -> bool:
    if root.judgement.state not in _ENDING:
        return True
    return below.judgement.state in _ENDING or any(one.judgement.trouble for _, one in walk(below))


def _spoken_of(root: Branch, chain: Sequence[Branch]) -> list[Branch]:
    said = chain[-1].judgement
    if said.trouble or said.state in _ENDING:
        return []
    found: list[tuple[int, Branch]] = []
    for _, one in walk(root):
        named = re.search(rf"(?<![\w.-]){re.escape(one.name)}(?![\w-])", said.message)
        own = any(not below.well for below in one.branches) and not any(one is link for link in chain)
        if named and own:
            found.append((named.start(), one))
    return _down(min(found, key=lambda one: one[0])[1]) if found else []


def _in_order(root: Branch) -> Iterator[Branch]:
    """Put held objects first, then follow the order of the hand-offs, or of the deletion."""
    if root.judgement.state in _ENDING:
        ends = [one for one in root.branches if one.kind in _MACHINES]
        ends += [one for one in reversed(root.branches) if one.kind not in _MACHINES]
        yield from sorted(ends, key=lambda one: one.judgement.state not in _ENDING)
    else:
        yield from sorted(root.branches, key=lambda one: one.judgement.state != "held")


def permanent_failure(root: Branch) -> Branch | None:
    """Return the object that blocks the cluster until a user acts; None while the cluster can continue by itself."""
    chain = blocking(root)
    return chain[-1] if chain and _is_permanent(root, chain[-1]) else None


def _is_permanent(root: Branch, one: Branch) -> bool:
    """Return True if only a user can help. A deletion ends the failures of everything that is not deleted yet."""
    is_ending = root.judgement.state in _ENDING
    return one.judgement.permanent and (not is_ending or one.judgement.state in _ENDING)


def actor(chain: Sequence[Branch]) -> Actor:
    """Return who acts next."""
    said = chain[-1].judgement
    if said.permanent or said.trouble:
        return "user"
    return "host" if said.reason in _HOST_ACTS else "controller"


def next_line(chain: Sequence[Branch]) -> str:
    """Return who acts next, the act, and where to read more."""
    return f"next: {_LEADS[actor(chain)]}: {then(chain)}"


def then(chain: Sequence[Branch]) -> str:
    """Return what comes next, and where to read more, in the object's own words: `kube.wait` puts both after
    semicolons."""
    leaf = chain[-1]
    said = leaf.judgement
    waits = [line for line in said.message.splitlines() if "; " in line]
    _, _, rest = next((line for line in waits if "(since " in line), waits[0] if waits else "").partition("; ")
    parts = [part.strip() for part in rest.rpartition("(since ")[2].split("; ") if part.strip()]
    logs = [part for part in parts if part.startswith(_LOGS)]
    told = [part for part in parts if part not in logs and not part.endswith("Z)")]
    if said.advice:
        told = [said.advice]
    elif said.reason == QUORUM_LOST:
        told = [part for part in told if not any(word in part for word in _RECOVERS)] or [_WITHOUT_QUORUM]
    usual = _BY_HOST if actor(chain) == "host" else _THEN.get(said.state, "")
    return "; ".join([*(told or [usual]), *(dict.fromkeys(logs) or [_log(chain)])])


def _log(chain: Sequence[Branch]) -> str:
    """Return where to read more of an object that does not say it itself."""
    leaf, root = chain[-1], chain[0]
    if leaf.kind.endswith("Machine"):
        return f"see remuda machine logs {leaf.name} -n {leaf.namespace}"
    return f"see remuda events --cluster {root.name} -n {root.namespace}"
