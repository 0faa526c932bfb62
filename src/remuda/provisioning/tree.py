"""A cluster as a tree, from the object that was applied down to its servers. Pure.

The metadata and conditions of each object tell whether it is healthy, what it waits for, and whether it continues by
itself; `judge` reads them. `blocker` finds the object that blocks all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from remuda.capi.conditions import NEGATIVE, SCALING_UP_BLOCKED
from remuda.capi.health import MACHINE_FAILED
from remuda.providers.shared import names as provider_names
from remuda.providers.shared.jobs.budget import BAD_OPTIONS
from remuda.providers.shared.types.machine import NEEDS_USER
from remuda.provisioning import troubles

Json = Mapping[str, Any]
State = Literal["well", "waiting", "held", "stalled", "paused", "deleting", "unknown"]

QUORUM_LOST = "QuorumLost"  # reason of a condition: etcd has no majority, and a person has to act
NOT_FOUND = "NotFound"

# The conditions that sum an object up, in the order in which they are asked.
_SUMMARIES = ("Ready", "Available", "RemediationAllowed")
_HELD, _STALLED, _PAUSED = "Held", "Stalled", "Paused"
_UNDER_WAY = ("RollingOut", "ScalingUp", "ScalingDown")  # also while enough of it is available
_DELETIONS = ("Deleting", "Removed", "DeleteJob")
_HOPELESS_REMOVALS = frozenset({BAD_OPTIONS, *NEEDS_USER})  # reasons: every attempt fails until a user acts
# Reasons: the server, or what the cluster shares, is still there.
_FAILED_REMOVALS = frozenset({"DeleteError", "InfrastructureError", *_HOPELESS_REMOVALS})
_WOULD_REPLACE = "WouldReplaceMachines"  # reason of Held: the policy of a pool forbids the change
_OF_NAMESPACES = ("NamespaceDeletionContentFailure", "NamespaceFinalizersRemaining", "NamespaceContentRemaining")
_PROVIDER_GROUPS = (provider_names.GROUP, provider_names.MACHINE_GROUP)
_QUOTED_REASONS = (MACHINE_FAILED, SCALING_UP_BLOCKED)  # of objects that report the failure of another one
_QUOTED = re.compile(r"^([A-Z]\w+) \S+/\S+: ", re.MULTILINE)  # how waits name the object that is waited for
_SINCE = re.compile(r"\(since (\d[^\s)]*Z)\)")


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """State that an object reports of itself."""

    state: State
    reason: str = ""
    message: str = ""
    since: str = ""  # RFC 3339
    trouble: bool = False  # something went wrong, or nothing goes on before a person acts
    permanent: bool = False  # nothing goes on before a person acts: waiting is in vain
    advice: str = ""  # what comes next, where the message does not say it

    @property
    def well(self) -> bool:
        return self.state == "well"


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    name: str
    namespace: str = ""
    note: str = ""  # what distinguishes it: "3 of 3", a version
    judgement: Judgement
    branches: Sequence[Branch] = ()

    @property
    def well(self) -> bool:
        return self.judgement.well and all(branch.well for branch in self.branches)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def judge(obj: Json) -> Judgement:
    metadata, status = obj.get("metadata") or {}, obj.get("status") or {}
    found = {str(one.get("type")): one for one in status.get("conditions") or () if isinstance(one, Mapping)}
    if metadata.get("deletionTimestamp"):
        return _judge_deletion(obj, found)
    if (lost := _quorum_lost(found)) is not None:
        return _said(lost, "stalled", trouble=True, permanent=not _is_outdated(obj, lost))
    if (one := found.get(_PAUSED)) and one.get("status") == "True":
        return _paused(obj, one)
    if (one := found.get(_HELD)) and one.get("status") == "True":
        permanent = one.get("reason") == _WOULD_REPLACE and not _is_outdated(obj, one)
        return _said(one, "held", trouble=True, permanent=permanent)
    if (one := found.get(_STALLED)) and one.get("status") == "True":
        return _stalled(obj, one)
    if (one := found.get("ScalingUp")) and one.get("status") == "True" and one.get("reason") == SCALING_UP_BLOCKED:
        return _stalled(obj, {**one, "message": _listed(str(one.get("message") or ""))})
    summary = next((found[type] for type in _SUMMARIES if type in found), None)
    if summary is not None and summary.get("status") != "True":
        if summary.get("reason") in NEEDS_USER and _has_own_reasons(obj):
            return _stalled(obj, summary)
        refusal = _refusal(obj, str(summary.get("message") or ""))
        if refusal is None:
            return _said(summary, "waiting")
        return _said(summary, "waiting", trouble=True, permanent=refusal.permanent, advice=refusal.advice)
    if 0 < int(status.get("observedGeneration") or 0) < int(metadata.get("generation") or 0):
        return Judgement(
            state="waiting", reason="NotSeenYet", message="waiting for its controller to reconcile the last change"
        )
    for type in _UNDER_WAY:
        if (one := found.get(type)) and one.get("status") == "True":
            return _said(one, "waiting")
    if summary is not None:
        return _said(summary, "well")
    bad = [one for type, one in found.items() if _is_bad(type, one)]
    if bad:
        return _said(min(bad, key=lambda one: str(one.get("lastTransitionTime"))), "waiting")
    if found or not _has_status(obj):
        return Judgement(state="well")
    return Judgement(
        state="unknown", message="waiting for the first reconcile", since=str(metadata.get("creationTimestamp") or "")
    )


def _judge_deletion(obj: Json, found: Mapping[str, Json]) -> Judgement:
    metadata = obj["metadata"]
    asked = str(metadata["deletionTimestamp"])
    if finalizers := troubles.foreign_finalizers(obj):
        return Judgement(
            state="deleting",
            reason="ForeignFinalizer",
            message=f"its deletion is complete except for the finalizer {', '.join(finalizers)} of another program",
            since=asked,
            trouble=True,
            advice=troubles.advice_on_finalizers(obj, finalizers),
        )
    if (one := found.get(_PAUSED)) and one.get("status") == "True":
        return _paused(obj, one)
    for one in found.values():
        if one.get("status") == "False" and one.get("reason") in _FAILED_REMOVALS:
            hopeless = one.get("reason") in _HOPELESS_REMOVALS
            advice = troubles.advice_on_removal(obj)
            return _said(one, "deleting", trouble=True, permanent=hopeless, advice=advice)
    for type in (*_DELETIONS, *_OF_NAMESPACES):
        one = found.get(type, {})
        if one.get("message") and one.get("status") != "False":
            return _said(one, "deleting")
    waits = ", ".join(metadata.get("finalizers") or ["the garbage collector"])
    return Judgement(state="deleting", message=f"waiting for {waits}", since=asked)


def _quorum_lost(found: Mapping[str, Json]) -> Json | None:
    """Order conditions as a person reads them: a summary says more than a flag."""
    types = [*(type for type in _SUMMARIES if type in found), *found]
    return next((found[type] for type in types if found[type].get("reason") == QUORUM_LOST), None)


def _paused(obj: Json, one: Json) -> Judgement:
    """An object that is paused with its Cluster waits for that; nothing has to be done to it."""
    advice = troubles.advice_on_pause(obj)
    return _said(one, "paused", trouble=bool(advice), permanent=bool(advice), advice=advice)


def _stalled(obj: Json, one: Json) -> Judgement:
    """Judge an object whose controller has stopped, or is refused. A cluster that only reports the failure of one of
    its Machines is not the cause: the Machine may be replaced by then."""
    refusal = _refusal(obj, str(one.get("message") or ""))
    permanent = refusal.permanent if refusal is not None else one.get("reason") not in _QUOTED_REASONS
    advice = refusal.advice if refusal is not None else troubles.advice_on_stall(obj, str(one.get("reason") or ""))
    permanent = permanent and not _is_outdated(obj, one)
    return _said(one, "stalled", trouble=True, permanent=permanent, advice=advice)


def _is_outdated(obj: Json, one: Json) -> bool:
    """Return True if a condition is about an earlier generation of its object."""
    generation = int((obj.get("metadata") or {}).get("generation") or 0)
    return 0 < int(one.get("observedGeneration") or 0) < generation


def _has_own_reasons(obj: Json) -> bool:
    """Return True for the objects of our providers. Others repeat the reasons of objects below them."""
    return str(obj.get("apiVersion") or "").partition("/")[0] in _PROVIDER_GROUPS


def _refusal(obj: Json, message: str) -> troubles.Refusal | None:
    """Nothing where it quotes what another object was refused: that one says it itself."""
    if any(kind != obj.get("kind") for kind in _QUOTED.findall(message)):
        return None
    return troubles.refusal(message, str((obj.get("metadata") or {}).get("namespace") or ""))


def _listed(message: str) -> str:
    """Return the items of a list without its heading: the first line of a message is what people see first."""
    lines = [line[2:] for line in message.splitlines() if line.startswith("* ")]
    return "\n".join(lines) or message


def _said(one: Json, state: State, *, trouble: bool = False, permanent: bool = False, advice: str = "") -> Judgement:
    message = str(one.get("message") or "")
    told = _SINCE.search(message)  # the wait itself knows better than its condition, which may have been False before
    return Judgement(
        state=state,
        reason=str(one.get("reason") or ""),
        message=message,
        since=told[1] if told and state != "well" else str(one.get("lastTransitionTime") or ""),
        trouble=trouble,
        permanent=permanent,
        advice=advice,
    )


def _is_bad(type: str, one: Json) -> bool:
    return one.get("status") == ("True" if type in NEGATIVE else "False")


def _has_status(obj: Json) -> bool:
    """Templates and configs have none; they are what they are."""
    kind = str(obj.get("kind") or "")
    return not kind.endswith(("Template", "Config"))


# ---- building ------------------------------------------------------------------------------------------------------


def branch(obj: Json, branches: Sequence[Branch] = (), *, note: str = "") -> Branch:
    metadata = obj.get("metadata") or {}
    return Branch(
        kind=str(obj.get("kind") or ""),
        name=str(metadata.get("name") or ""),
        namespace=str(metadata.get("namespace") or ""),
        note=note,
        judgement=judge(obj),
        branches=tuple(branches),
    )


def missing(kind: str, name: str, of: Json, *, installed: bool = True, declared: bool = False) -> Branch | None:
    """Return an object that another one refers to and that does not exist. None if it does not have to: what refers to
    it is being deleted. `installed`: its kind is. `declared`: a controller creates it again."""
    metadata = of.get("metadata") or {}
    if metadata.get("deletionTimestamp"):
        return None
    owner = f"{of.get('kind')} {metadata.get('name')}"
    gone = "does not exist" if installed else "does not exist, because its kind is not installed"
    advice, trouble = f"create {kind} {name}, or change what refers to it", True
    if not installed:
        advice = f"install the provider of {kind}, or change what refers to it"
    elif of.get("kind") == "Machine":
        advice, trouble = _instead_of_part(of), _had_server(of)
    elif declared:
        advice, trouble = "the manager recreates it within seconds; if it does not, see the manager's log", False
    judgement = Judgement(
        state="waiting",
        reason=NOT_FOUND,
        message=f"{gone}, but {owner} refers to it",
        trouble=trouble,
        permanent=trouble,
        advice=advice,
    )
    return Branch(kind=kind, name=name, namespace=str(metadata.get("namespace") or ""), judgement=judgement)


def part_of_machine(machine: Json, part: Branch) -> Branch:
    """Return a Machine's server or bootstrap object, judged with its Machine: one that somebody deleted alone never
    comes back, and neither does the Machine. One of a Machine that is about to be replaced fails for nobody."""
    said = part.judgement
    if (machine.get("metadata") or {}).get("deletionTimestamp"):
        return part
    if said.state != "deleting":
        if not (said.permanent and _is_replaced(machine)):
            return part
        return msgspec.structs.replace(part, judgement=msgspec.structs.replace(said, permanent=False))
    advice = said.advice * said.trouble or _instead_of_part(machine)
    news = msgspec.structs.replace(said, trouble=True, permanent=True, advice=advice)
    return msgspec.structs.replace(part, judgement=news)


def _is_replaced(machine: Json) -> bool:
    """Return True if its MachineDeployment has changed since: a rollout deletes the Machine."""
    said = (machine.get("status") or {}).get("conditions") or ()
    return any((one.get("type"), one.get("status")) == ("UpToDate", "False") for one in said)


def _had_server(machine: Json) -> bool:
    """Before its first server a MachineSet creates what a Machine lacks."""
    done = (machine.get("status") or {}).get("initialization") or {}
    return bool(done.get("infrastructureProvisioned") or (machine.get("spec") or {}).get("providerID"))


def _instead_of_part(machine: Json) -> str:
    metadata = machine.get("metadata") or {}
    name, place = metadata.get("name"), metadata.get("namespace")
    owners = {str(one.get("kind")) for one in metadata.get("ownerReferences") or () if one.get("controller")}
    if not _had_server(machine) and "MachineSet" in owners:
        return "its MachineSet creates it within seconds"
    then = "its MachineSet creates another one with a new server" if "MachineSet" in owners else "then create it again"
    return f"delete Machine {name} (remuda delete machine {name} -n {place}): {then}"


def walk(root: Branch, depth: int = 0) -> Iterator[tuple[int, Branch]]:
    yield depth, root
    for one in root.branches:
        yield from walk(one, depth + 1)
