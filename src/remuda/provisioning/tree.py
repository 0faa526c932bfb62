"""A cluster as a tree, from the object that was applied down to its servers, and what holds it up. Pure.

Every object says for itself, in its conditions, whether it is well and what it waits for; nothing is worked out here
but which of them to look at. The order of branches is that of the hand-offs, so the first that is not well is where
the work stands: following it down leads to the object that everything above it waits for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from remuda.capi.conditions import NEGATIVE

Json = Mapping[str, Any]
State = Literal["well", "waiting", "held", "paused", "deleting", "unknown"]

# The conditions that sum an object up, in the order in which they are asked.
_SUMMARIES = ("Ready", "Available", "RemediationAllowed")
_HELD = "Held"
_UNDER_WAY = ("RollingOut", "ScalingUp", "ScalingDown")  # also while enough of it is available
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
    summary = next((found[type] for type in _SUMMARIES if type in found), None)
    if summary is not None and summary.get("status") != "True":
        return _said(summary, "waiting")
    if 0 < int(status.get("observedGeneration") or 0) < int(metadata.get("generation") or 0):
        return Judgement(state="waiting", reason="NotSeenYet", message="its last change has not been looked at yet")
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
    """The chain from the root to what holds it up; empty when all is well.

    Where the last of it speaks of an object elsewhere in the tree that waits for something of its own, as a control
    plane does of machines whose servers are being made, it goes on there."""
    chain = _down(root)
    return [*chain, *_spoken_of(root, chain)] if chain else []


def _down(root: Branch) -> list[Branch]:
    if root.well:
        return []
    below = next((branch for branch in _in_order(root) if not branch.well), None)
    return [root] if below is None else [root, *_down(below)]


def _spoken_of(root: Branch, chain: Sequence[Branch]) -> list[Branch]:
    text = chain[-1].judgement.message
    found: list[tuple[int, Branch]] = []
    for _, one in walk(root):
        named = re.search(rf"(?<![\w.-]){re.escape(one.name)}(?![\w-])", text)
        own = any(not below.well for below in one.branches) and not any(one is link for link in chain)
        if named and own:
            found.append((named.start(), one))
    return _down(min(found, key=lambda one: one[0])[1]) if found else []


def _in_order(root: Branch) -> Iterator[Branch]:
    """What is held or being deleted concerns people first; else the hand-offs' own order."""
    yield from sorted(root.branches, key=lambda branch: branch.judgement.state not in ("held",))


def walk(root: Branch, depth: int = 0) -> Iterator[tuple[int, Branch]]:
    yield depth, root
    for one in root.branches:
        yield from walk(one, depth + 1)


# What comes next where an object says nothing of it, by its state.
_THEN: Mapping[State, str] = {
    "waiting": "it goes on by itself as soon as that is there",
    "unknown": "a controller looks at it within seconds; if none does, the management plane is not running",
    "held": "undo the change, or allow what it would do",
    "paused": "nothing, until it is no longer paused",
    "deleting": "it goes by itself when that is done",
}
_LOGS = ("see ", "its log: ")


def then(leaf: Branch) -> str:
    """What comes next, and where to read more, in the object's own words: `kube.waits` puts both after semicolons."""
    said = leaf.judgement
    if said.reason == _NOT_FOUND:
        return f"create {leaf}, or change what refers to it"
    waits = [line for line in said.message.splitlines() if "; " in line]
    _, _, rest = next((line for line in waits if "(since " in line), waits[0] if waits else "").partition("; ")
    parts = [part.strip() for part in rest.rpartition("(since ")[2].split("; ") if part.strip()]
    logs = [part for part in parts if part.startswith(_LOGS)]
    told = [part for part in parts if part not in logs and not part.endswith("Z)")]
    return "; ".join([*(told or [_THEN.get(said.state, "")]), *dict.fromkeys(logs)])
