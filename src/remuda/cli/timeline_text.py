"""Text of a timeline: one line per event, and a table with the duration of each machine's stages. Pure."""

from __future__ import annotations

from remuda.cli.output import table
from remuda.cli.text_wrap import wrapped
from remuda.cli.tree_text import span
from remuda.provisioning.timeline import STAGES, MachineTimeline, Timeline, TimelineEvent

_DAY = len("2026-01-02")
_TIME = len("03:04:05")
_GAP = "  "
_BESIDE = 36  # least width of the text; in less room it is wrapped beneath
_BENEATH = " " * (_TIME + len(_GAP))


def timeline_lines(found: Timeline, *, width: int | None = None) -> list[str]:
    """Return the lines of a timeline. Times are UTC; the date is printed at the start of each day."""
    made = []
    day = ""
    spans = max((len(_after(one)) for one in found.moments), default=0)
    names = max((len(_object(one)) for one in found.moments), default=0)
    for one in found.moments:
        if one.time[:_DAY] != day:
            day = one.time[:_DAY]
            made.append(f"{day} (UTC)")
        made += _lines(one, spans, names, width)
    if found.machines:
        columns = ("MACHINE", *(name.upper() for name, _ in STAGES), "TOTAL")
        made += ["", *table(columns, [_row(one) for one in found.machines], width).splitlines()]
    return made


def _lines(one: TimelineEvent, spans: int, names: int, width: int | None) -> list[str]:
    head = _GAP.join((one.time[_DAY + 1 :][:_TIME], _after(one).ljust(spans), _object(one).ljust(names), ""))
    if width is None:
        return [head + one.what]
    if width - len(head) < _BESIDE:
        return [head.rstrip(), *wrapped(one.what, width, _BENEATH)]
    lines = wrapped(one.what, width, " " * len(head)) or [head]
    return [head + lines[0][len(head) :], *lines[1:]]


def _object(one: TimelineEvent) -> str:
    return f"{one.kind} {one.name}"


def _after(one: TimelineEvent) -> str:
    return "" if one.after is None else f"+{span(one.after)}"


def _row(one: MachineTimeline) -> tuple[str, ...]:
    durations = {stage.name: span(stage.seconds) + ("" if stage.over else "…") for stage in one.stages}
    whole = len(one.stages) == len(STAGES)
    total = span(sum(stage.seconds for stage in one.stages)) if whole else "-"
    return (one.machine, *(durations.get(name, "-") for name, _ in STAGES), total)
