"""Preview of a change as a table with one row per machine, for `remuda plan` and for commands that edit clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from remuda.cli.output import table_with_reasons, terminal_width

if TYPE_CHECKING:
    from remuda.provisioning.preview import Preview, Step

_COLUMNS = ("TURN", "ACTION", "POOL", "MACHINE", "WHY")
_COLOURS = {"replace": "red", "held": "red", "delete": "red", "drain": "yellow", "restart": "yellow", "create": "green"}
_KEEP = "keep"


def show(found: Preview, *, changes_only: bool = False) -> None:
    """Print a preview. `changes_only`: count unchanged machines instead of listing them."""
    click.echo(click.style(f"Cluster {found.cluster}{' (new)' if found.new else ''}", bold=True))
    for wait in found.waits:
        click.echo(f"blocked: {wait}")
    steps = [step for step in found.steps if not (changes_only and step.action == _KEEP)]
    unchanged = len(found.steps) - len(steps)
    if steps:
        _table([_row(step) for step in steps])
    elif not unchanged:
        click.echo("no machines affected")
    if unchanged:
        click.echo(f"{unchanged} machine{'s' if unchanged > 1 else ''} unchanged")


def _table(rows: list[tuple[str, ...]]) -> None:
    lines = table_with_reasons(_COLUMNS, rows, terminal_width())
    for text, (_, action, *_) in zip(lines, (_COLUMNS, *rows), strict=True):
        click.echo(text.replace(action, click.style(action, fg=_COLOURS.get(action)), 1))


def _row(step: Step) -> tuple[str, ...]:
    return (str(step.turn or "-"), step.action, step.pool, step.machine or "(new)", step.why)
