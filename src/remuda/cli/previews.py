"""What a change would do to each machine, as a table: for `remuda plan`, and for commands that are about to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

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
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    for row in (_COLUMNS, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        cells[1] = click.style(cells[1], fg=_COLOURS.get(row[1]))
        click.echo("   ".join(cells).rstrip())


def _row(step: Step) -> tuple[str, ...]:
    return (str(step.turn or "-"), step.action, step.pool, step.machine or "(new)", step.why)
