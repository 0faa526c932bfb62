"""Preview of a change as a table, one row per machine: for `remuda plan`, and for commands that are about to change."""

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
    """`changes_only`: machines that stay as they are are counted, not named."""
    click.echo(click.style(f"Cluster {found.cluster}{' (new)' if found.new else ''}", bold=True))
    for wait in found.waits:
        click.echo(f"waits: {wait}")
    steps = [step for step in found.steps if not (changes_only and step.action == _KEEP)]
    kept = len(found.steps) - len(steps)
    if steps:
        _table([_row(step) for step in steps])
    elif not kept:
        click.echo("no machine is concerned")
    if kept:
        click.echo(f"{kept} machine{'s stay as they are' if kept > 1 else ' stays as it is'}")


def _table(rows: list[tuple[str, ...]]) -> None:
    told = table_with_reasons(_COLUMNS, rows, terminal_width())
    for text, (_, action, *_) in zip(told, (_COLUMNS, *rows), strict=True):
        click.echo(text.replace(action, click.style(action, fg=_COLOURS.get(action)), 1))


def _row(step: Step) -> tuple[str, ...]:
    return (str(step.turn or "-"), step.action, step.pool, step.machine or "(new)", step.why)
