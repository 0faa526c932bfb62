"""Conditions derived from other conditions: summaries of one object, aggregates over many, mirrors of a provider's, and
the reports of Machines that MachineSets and MachineDeployments derive their conditions from.

All functions are pure, and a result depends only on the content of the conditions and, where given, the time: the order
in which objects are listed never matters, so that repeated reconciles produce identical bytes. `clusterctl describe`
and people read the messages: one line each, the most severe first, at most three of them naming at most three objects.

A condition has positive polarity when True is good (Ready) and negative polarity when False is good (Deleting). By
status and polarity each source is an issue, unknown, or mere information; the most severe one decides the status of the
result.
"""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from remuda.capi.inflection import plural
from remuda.capi.types import Machine
from remuda.kube import clock
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN, condition, find, is_false
from remuda.kube.objects import Condition

NOT_YET_REPORTED = "NotYetReported"  # reason: a condition that is expected and has never been there
SCALING_UP_BLOCKED = "ScalingUpBlocked"  # reason of ScalingUp: no Machines are created until the user acts

NEGATIVE = frozenset({"Deleting", "Paused", "Remediating", "RollingOut", "ScalingDown", "ScalingUp", "Updating"})

_MOST_LINES = 3
_MOST_NAMES = 3
_SETTLING_SECONDS = 10.0  # a Machine this young may have no UpToDate condition yet; upstream's value
_LONG_SECONDS = 15 * 60.0


class Priority(enum.IntEnum):
    ISSUE = 0
    UNKNOWN = 1
    INFO = 2


Classify = Callable[[Condition], Priority]

_OTHERS = {
    Priority.ISSUE: "with other issues",
    Priority.UNKNOWN: "with status unknown",
    Priority.INFO: "with additional info",
}


class Reasons(NamedTuple):
    """Reasons of a result, one for each severity of its most severe source."""

    issue: str
    unknown: str
    info: str

    @classmethod
    def of(cls, type: str) -> Reasons:
        """Return the usual ones: NotReady, ReadyUnknown and Ready; for negative polarity ScalingUp, … and
        NotScalingUp.
        """
        yes, no, unknown = type, f"Not{type}", f"{type}Unknown"
        return cls(yes, unknown, no) if type in NEGATIVE else cls(no, unknown, yes)


class Reporter(NamedTuple):
    """Object whose condition is part of an aggregate."""

    kind: str
    name: str
    conditions: Sequence[Condition]
    control_plane: bool = False  # Machines of the control plane are named before all others


class Gate(Protocol):
    """Condition that the user wants to include: a readiness or an availability gate."""

    @property
    def condition_type(self) -> str: ...

    @property
    def polarity(self) -> str: ...


def negative_with(gates: Iterable[Gate]) -> frozenset[str]:
    """Return the condition types of negative polarity, including those that gates declare."""
    return NEGATIVE | {gate.condition_type for gate in gates if gate.polarity == "Negative"}


def classifier(negative: Collection[str] = NEGATIVE) -> Classify:
    def classify(one: Condition) -> Priority:
        if one.status not in (TRUE, FALSE):
            return Priority.UNKNOWN
        healthy = FALSE if one.type in negative else TRUE
        return Priority.INFO if one.status == healthy else Priority.ISSUE

    return classify


def summary(
    target: str,
    present: Iterable[Condition],
    of: Sequence[str],
    *,
    optional: Collection[str] = (),
    negative: Collection[str] = NEGATIVE,
    reasons: Reasons | None = None,
    classify: Classify | None = None,
) -> Condition:
    """Summarise several conditions of one object, in the order of `of`; an optional one may be missing."""
    classify = classify or classifier(negative)
    by_type = {one.type: one for one in present}
    sources = [
        by_type.get(type) or _not_reported(type)
        for type in dict.fromkeys(of)
        if type in by_type or type not in optional
    ]
    gravest = min(map(classify, sources), default=Priority.INFO)
    shown = (one for one in sources if classify(one) < Priority.INFO or (gravest == Priority.INFO and one.message))
    lines = [f"* {one.type}:{_nested(one.message or one.reason)}" for one in shown]
    return _result(target, gravest, reasons, lines)


def aggregate(
    target: str,
    source: str,
    reporters: Iterable[Reporter],
    *,
    when_empty: str,
    reasons: Reasons | None = None,
    negative: Collection[str] = NEGATIVE,
) -> Condition:
    """Aggregate the same condition of many objects; `when_empty` is the reason if there are no objects."""
    classify = classifier(negative)
    sources = [(one, find(one.conditions, source) or _not_reported(source)) for one in reporters]
    if not sources:
        return condition(target, _status(target, Priority.INFO), when_empty)
    gravest = min(classify(found) for _, found in sources)
    groups: defaultdict[tuple[str, str], _Group] = defaultdict(_Group)
    for reporter, found in sources:
        priority = classify(found)
        if priority < Priority.INFO or (gravest == Priority.INFO and found.message):
            groups[reporter.kind, found.message or found.reason].add(reporter, priority)
    return _result(target, gravest, reasons or Reasons.of(source), _lines(groups))


class _Group:
    """Objects of one kind whose conditions have the same message."""

    def __init__(self) -> None:
        self.priority = Priority.INFO
        self.objects: list[tuple[bool, str]] = []

    def add(self, reporter: Reporter, priority: Priority) -> None:
        self.priority = min(self.priority, priority)
        self.objects.append((not reporter.control_plane, reporter.name))

    def rank(self) -> tuple[bool, Priority, int, list[tuple[bool, str]]]:
        objects = sorted(self.objects)
        return objects[0][0], self.priority, -len(objects), objects

    def names(self) -> list[str]:
        return [name for _, name in sorted(self.objects)]


def _lines(groups: dict[tuple[str, str], _Group]) -> list[str]:
    lines: list[str] = []
    for kind in sorted({kind for kind, _ in groups}):
        ranked = sorted((group.rank(), message, group) for (of, message), group in groups.items() if of == kind)
        others = dict.fromkeys(Priority, 0)
        room = _MOST_LINES - sum(line.startswith("* ") for line in lines)
        for place, (_, message, group) in enumerate(ranked):
            if place < room:
                lines.append(f"* {_named(kind, group.names())}:{_nested(message)}")
            else:
                others[group.priority] += len(group.objects)
        lines += [f"And {_count(n, kind)} {_OTHERS[priority]}" for priority, n in others.items() if n]
    return lines


def _named(kind: str, names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        shown += f", ... ({len(names) - _MOST_NAMES} more)"
    return f"{kind if len(names) == 1 else plural(kind)} {shown}"


def _count(n: int, kind: str) -> str:
    return f"{n} {kind if n == 1 else plural(kind)}"


_BULLET = re.compile(r"\s*\*\s")


def _nested(message: str) -> str:
    """Return a message after the colon of a line; a message of several lines, or a list, follows indented below it."""
    lines = message.split("\n")
    bullets = [_BULLET.match(line) is not None for line in lines]
    if len(lines) == 1 and not bullets[0]:
        return f" {message}"
    if all(bullets):
        return "".join(f"\n  {line}" for line in lines)
    return "".join(f"\n    {line}" if bullet else f"\n  * {line}" for line, bullet in zip(lines, bullets, strict=True))


def _result(target: str, gravest: Priority, reasons: Reasons | None, lines: list[str]) -> Condition:
    reason = (reasons or Reasons.of(target))[gravest]
    return condition(target, _status(target, gravest), reason, "\n".join(lines))


def _status(target: str, gravest: Priority) -> str:
    if gravest == Priority.UNKNOWN:
        return UNKNOWN
    return FALSE if (gravest == Priority.ISSUE) != (target in NEGATIVE) else TRUE


def _not_reported(type: str) -> Condition:
    return condition(type, UNKNOWN, NOT_YET_REPORTED, "Condition not yet reported")


def internal_error(target: str) -> Condition:
    return condition(target, UNKNOWN, "InternalError", "Please check controller logs for errors")


def mirror(target: str, source: Condition | None, *, like: str, ready: bool, waiting_for: str) -> Condition:
    """Copy a provider's own condition under our name, with its transition time.

    `like` is what it is called there (Ready or Available). A provider that reports none is judged by the flag it set
    once (`ready`), and `waiting_for` names that flag.
    """
    reasons = Reasons.of(like)
    if source is None:
        return condition(target, ready, reasons.info if ready else reasons.issue, "" if ready else waiting_for)
    reason = source.reason or (reasons.info if source.status == TRUE else "NoReasonReported")
    return Condition(
        type=target,
        status=source.status,
        reason=reason,
        message=source.message,
        last_transition_time=source.last_transition_time,
    )


def mirror_of_absent(target: str, *, kind: str, existed: bool, owner: str, owner_deleting: bool) -> Condition:
    """Return the condition for a provider's object that does not exist yet, or no longer exists."""
    if not existed:
        return condition(target, False, "ObjectDoesNotExist", f"{kind} does not exist")
    ending = "" if owner_deleting else f" while the {owner} still exists"
    return condition(target, False, "ObjectDeleted", f"{kind} has been deleted{ending}")


def remediating(machines: Iterable[Reporter], *, by: str = "") -> Condition:
    """Return the Remediating condition: Machines that wait for remediation by their owner, else Machines that are
    unhealthy but not marked for it.

    `by` names the owner that would remediate them; a Cluster, which remediates none itself, leaves it out.
    """
    machines = list(machines)
    waiting = [one for one in machines if is_false(one.conditions, "OwnerRemediated")]
    if waiting:
        message = aggregate("Remediating", "OwnerRemediated", waiting, when_empty="").message
        return condition("Remediating", True, "Remediating", message)
    unhealthy = sorted((not one.control_plane, one.name) for one in machines if is_false(one.conditions, _HEALTH))
    if not unhealthy:
        return condition("Remediating", False, "NotRemediating")
    subject = _named("Machine", [name for _, name in unhealthy])
    verb = "is" if len(unhealthy) == 1 else "are"
    note = f" (not to be remediated by {by})" if by else " (not to be remediated)"
    return condition("Remediating", False, "NotRemediating", f"{subject} {verb} not healthy{note}")


_HEALTH = "HealthCheckSucceeded"


# ---- reports of Machines -----------------------------------------------------------------------------------------


def reporter(machine: Machine) -> Reporter:
    return Reporter("Machine", machine.metadata.name, machine.status.conditions, machine.is_control_plane)


def judged(machines: Sequence[Machine], now: float) -> list[Reporter]:
    """Return reporters of Machines that have an UpToDate condition, or are old enough to have one."""
    return [
        reporter(machine)
        for machine in machines
        if find(machine.status.conditions, "UpToDate") is not None
        or _age(machine.metadata.creation_timestamp, now) > _SETTLING_SECONDS
    ]


def late(machines: Sequence[Machine], now: float) -> list[str]:
    """Return a line that names Machines whose deletion takes long; empty if there are none."""
    found = [m.metadata.name for m in machines if _age(m.metadata.deletion_timestamp, now) > _LONG_SECONDS]
    if not found:
        return []
    shown = ", ".join(found[:3]) + (f", ... ({len(found) - 3} more)" if len(found) > 3 else "")
    noun, verb = ("Machine", "is") if len(found) == 1 else ("Machines", "are")
    return [f"* {noun} {shown} {verb} in deletion since more than 15m"]


def becomes_late_at(machines: Sequence[Machine], now: float) -> float | None:
    """Return the time at which `late` will report another Machine; None if no further one is due."""
    moments = [clock.parse(m.metadata.deletion_timestamp) for m in machines if m.metadata.deletion_timestamp]
    due = [moment + _LONG_SECONDS + 1 for moment in moments]
    return min((moment for moment in due if moment > now), default=None)


def _age(moment: str | None, now: float) -> float:
    return now - clock.parse(moment) if moment else 0.0
