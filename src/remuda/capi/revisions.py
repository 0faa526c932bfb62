"""Revisions of a MachineDeployment: the MachineSet of the current template, the names of new MachineSets, and the
differences between a Machine's MachineSet and the MachineDeployment.

Only what cannot be changed on a running server makes a revision: version, bootstrap, infrastructure and failure domain.
Everything else in the template reaches Machines in place. The name of a new MachineSet follows from what it is made
for, so two who make the same one at the same time, or one who makes it twice because of a crash, make one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

import msgspec

from remuda.capi import names
from remuda.capi.types import Bootstrap, MachineDeployment, MachineSet, MachineTemplate, Reference
from remuda.kube import clock

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_CODE_LENGTH = 5
_LONGEST_NAME = 63  # the name of a set is a label value of its Machines
_LONGEST_HISTORY = 2000


class RevisionFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields of a template that determine its revision."""

    version: str
    bootstrap: Bootstrap
    infrastructure: Reference
    failure_domain: str


def essence(template: MachineTemplate) -> RevisionFields:
    spec = template.spec
    return RevisionFields(spec.version, spec.bootstrap, spec.infrastructure_ref, spec.failure_domain)


class Sets(msgspec.Struct, frozen=True):
    """The MachineSets of a MachineDeployment: the one that stands for its template, if there is one, and the others."""

    new: MachineSet | None
    old: Sequence[MachineSet]  # oldest first


def sort(deployment: MachineDeployment, sets: Iterable[MachineSet], now: float) -> Sets:
    """Separate the MachineSet of the current template from the others. If several match the template, pick the one with
    the most replicas, among those the oldest."""
    ordered = sorted(sets, key=_age)
    wanted = essence(deployment.spec.template)
    equal = [
        one
        for one in ordered
        if not one.metadata.deleting and essence(one.spec.template) == wanted and _is_late_enough(one, deployment, now)
    ]
    new = max(equal, key=lambda one: one.spec.replicas or 0, default=None)  # the first of equals: the oldest
    return Sets(new, [one for one in ordered if one is not new])


def _is_late_enough(one: MachineSet, deployment: MachineDeployment, now: float) -> bool:
    """Made after the time from which Machines are to be new, or for it: whatever the server's clock said then, a set
    made for that time must be recognised, or another would be made, and another."""
    due = rollout_due(deployment, now)
    made_for = one.metadata.labels.get(names.TEMPLATE_HASH, "").partition("-")[0]
    return due is None or _created(one) >= due or made_for == _fingerprint(deployment, now)


def rollout_due(deployment: MachineDeployment, now: float) -> float | None:
    """Machines made before this are to be replaced; None while the time has not come. In whole seconds, as objects
    have their times."""
    after = deployment.spec.rollout.after
    moment = clock.parse(after) if after else None
    return float(int(moment)) if moment is not None and moment <= now else None


class MachineSetRevision(msgspec.Struct, frozen=True):
    """Name and template hash of a new MachineSet."""

    name: str
    hash: str  # of the label machine-template-hash


def identify(deployment: MachineDeployment, is_taken: Callable[[str], bool], now: float) -> MachineSetRevision:
    """Return the identity of the MachineSet to create for the current template, with a name that is not taken."""
    content = _content(deployment, now)
    # A set of the same content that is being deleted may still hold the name: each attempt derives another one.
    for attempt in count():
        code = _code(hashlib.sha256(content + str(attempt).encode()).digest())
        name = f"{deployment.metadata.name[: _LONGEST_NAME - _CODE_LENGTH - 1]}-{code}"
        if not is_taken(name):
            return MachineSetRevision(name, f"{_fingerprint(deployment, now)}-{code}")
    raise AssertionError("count never ends")


def _fingerprint(deployment: MachineDeployment, now: float) -> str:
    return str(int.from_bytes(hashlib.sha256(_content(deployment, now)).digest()[-4:], "big"))


def _content(deployment: MachineDeployment, now: float) -> bytes:
    """Return the content that identifies a set: the template, the MachineDeployment's UID, and the rollout time if
    due."""
    due = rollout_due(deployment, now)
    parts = [essence(deployment.spec.template), deployment.metadata.uid, "" if due is None else clock.rfc3339(due)]
    return msgspec.json.encode(parts, order="sorted")


def _code(digest: bytes) -> str:
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_CODE_LENGTH])


def revision(annotations: Mapping[str, str]) -> int:
    """Return the revision from the annotations; 0 if it is missing or not a number."""
    text = annotations.get(names.REVISION, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def next_revision(sets: Sets) -> int:
    """Return the revision of the new MachineSet: above all others, so a roll-back is a new revision too."""
    highest = max((revision(one.metadata.annotations) for one in sets.old), default=0)
    own = revision(sets.new.metadata.annotations) if sets.new is not None else 0
    return own if own > highest else highest + 1


def bookkeeping(present: Mapping[str, str], number: int) -> dict[str, str]:
    """The annotations that say which revision a MachineSet is, and which it was before."""
    past = revision(present)
    if past == number:
        return {}
    noted = {names.REVISION: str(number)}
    if past:
        history = [entry for entry in present.get(names.REVISION_HISTORY, "").split(",") if entry]
        noted[names.REVISION_HISTORY] = _shortened([*history, str(past)])
    return noted


def _shortened(history: list[str]) -> str:
    """Return the latest entries that fit: endless rollbacks must not fill the object."""
    while len(text := ",".join(history)) > _LONGEST_HISTORY:
        history = history[1:]
    return text


def _age(one: MachineSet) -> tuple[float, str]:
    return _created(one), one.metadata.name


def _created(one: MachineSet) -> float:
    created = one.metadata.creation_timestamp
    return clock.parse(created) if created else 0.0


def is_outdated(machine_set: MachineSet, deployment: MachineDeployment) -> bool:
    """Return whether the MachineDeployment has a later revision than this Machine's MachineSet."""
    return 0 < revision(machine_set.metadata.annotations) < revision(deployment.metadata.annotations)


def differences(machine_set: MachineSet, deployment: MachineDeployment, now: float) -> list[str]:
    """Return the differences between this MachineSet's Machines and the MachineDeployment's template, one sentence
    each."""
    mine, wanted = essence(machine_set.spec.template), essence(deployment.spec.template)
    found = []
    if mine.version != wanted.version:
        found.append(f"Version {mine.version or 'not set'}, {wanted.version or 'none'} required")
    if mine.failure_domain != wanted.failure_domain:
        required = wanted.failure_domain or "none"
        found.append(f"Failure domain {mine.failure_domain or 'not set'}, {required} required")
    if mine.bootstrap != wanted.bootstrap:
        found.append("Bootstrap template differs from that of the MachineDeployment")
    if mine.infrastructure != wanted.infrastructure:
        found.append(f"Infrastructure was created from {mine.infrastructure}, {wanted.infrastructure} required")
    due = rollout_due(deployment, now)
    created = machine_set.metadata.creation_timestamp
    if due is not None and (created is None or clock.parse(created) < due):
        found.append(f"MachineDeployment spec.rollout.after ({clock.rfc3339(due)}) has passed")
    return found
