"""A cluster as a tree, from the object that was applied down to its servers, and what holds it up. Pure.

Every object says for itself, in its conditions, whether it is well and what it waits for; nothing is worked out here
but which of them to look at. The order of branches is that of the hand-offs, so the first that is not well is where
the work stands: following it down leads to the object that everything above it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from remuda.capi.conditions import NEGATIVE

Json = Mapping[str, Any]
State = Literal["well", "waiting", "held", "paused", "deleting", "unknown"]

# The conditions that sum an object up, in the order in which they are asked.
_SUMMARIES = ("Ready", "Available", "RemediationAllowed")
_HELD = "Held"
_NOT_FOUND = "NotFound"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What an object says of itself."""

    state: State
    reason: str = ""
    message: str = ""
    since: str = ""  # RFC 3339

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
        said = found.get("Deleting") or found.get("Removed") or found.get("DeleteJob") or {}
        message = str(said.get("message") or "")
        if not message:
            message = f"waits for {', '.join(metadata.get('finalizers') or ['the garbage collector'])}"
        return Judgement(
            state="deleting",
            reason=str(said.get("reason") or ""),
            message=message,
            since=str(metadata["deletionTimestamp"]),
        )
    if (one := found.get("Paused")) and one.get("status") == "True":
        return _said(one, "paused")
    if (one := found.get(_HELD)) and one.get("status") == "True":
        return _said(one, "held")
    for type in _SUMMARIES:
        if one := found.get(type):
            return _said(one, "well" if one.get("status") == "True" else "waiting")
    bad = [one for type, one in found.items() if _is_bad(type, one)]
    if bad:
        return _said(min(bad, key=lambda one: str(one.get("lastTransitionTime"))), "waiting")
    if found or not _has_status(obj):
        return Judgement(state="well")
    return Judgement(state="unknown", message="nothing is known of it yet: no controller has looked at it")


def _said(one: Json, state: State) -> Judgement:
    return Judgement(
        state=state,
        reason=str(one.get("reason") or ""),
        message=str(one.get("message") or ""),
        since=str(one.get("lastTransitionTime") or ""),
    )


def _is_bad(type: str, one: Json) -> bool:
    return one.get("status") == ("True" if type in NEGATIVE else "False")


def _has_status(obj: Json) -> bool:
    """Templates and configs have none; they are what they are."""
    kind = str(obj.get("kind") or "")
    return not kind.endswith(("Template", "Config"))


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


def missing(kind: str, name: str, namespace: str, of: str) -> Branch:
    """Something that is referred to and is not there."""
    judgement = Judgement(state="waiting", reason=_NOT_FOUND, message=f"does not exist, but {of} refers to it")
    return Branch(kind=kind, name=name, namespace=namespace, judgement=judgement)


def blocking(root: Branch) -> list[Branch]:
    """The chain from the root to what holds it up; empty when all is well."""
    if root.well:
        return []
    below = next((branch for branch in _in_order(root) if not branch.well), None)
    return [root] if below is None else [root, *blocking(below)]


def _in_order(root: Branch) -> Iterator[Branch]:
    """What is held or being deleted concerns people first; else the hand-offs' own order."""
    yield from sorted(root.branches, key=lambda branch: branch.judgement.state not in ("held",))


def walk(root: Branch, depth: int = 0) -> Iterator[tuple[int, Branch]]:
    yield depth, root
    for one in root.branches:
        yield from walk(one, depth + 1)


# What an object that says nothing more leaves to do, by its state.
_THEN: Mapping[State, str] = {
    "waiting": "it is looked at again whenever something of it changes; `remuda events` tells what has happened",
    "unknown": "a controller looks at it within seconds; if none does, the management plane is not running",
    "held": "undo the change, or allow what it would do",
    "paused": "nothing, until it is no longer paused",
    "deleting": "it goes by itself when that is done",
}


def then(leaf: Branch) -> str:
    """What comes next, in the object's own words: `kube.waits` puts them after the first semicolon."""
    said = leaf.judgement
    if said.reason == _NOT_FOUND:
        return f"create {leaf}, or change what refers to it"
    _, _, rest = said.message.partition("; ")
    return rest.strip() or _THEN.get(said.state, "")
