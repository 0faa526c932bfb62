"""Output of commands: a table for people, JSON or YAML for programs.

Tables go to standard output and notes to standard error, so that a pipe gets the data alone. On a terminal a table
keeps to its width: the last column is cut where it does not fit, and `-o wide` or `-o json` shows it whole. In a pipe
nothing is cut.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from remuda.cli.text_wrap import terminal_size, wrapped

TABLE, WIDE, JSON, YAML, NAME = "table", "wide", "json", "yaml", "name"
NOTHING = "<none>"  # cell without a value
_GAP = "   "
_BENEATH = " " * 7
_IMPORTANT = ("NAME", "NAMESPACE", "MESSAGE", "READY", "STATUS", "PHASE", "VERSION", "AGE", "AVAILABLE")
_SENTENCES = ("MESSAGE",)
_LEAST = 8  # width of the last column, however narrow the terminal


def output_option(*formats: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return `-o` with the formats that a command supports; the first is the default."""
    known = formats or (TABLE, JSON, YAML)
    return click.option(
        "-o", "--output", type=click.Choice(known), default=known[0], show_default=True, help="Output format."
    )


no_headers_option = click.option("--no-headers", is_flag=True, help="Print the table without its head line.")


def print_value(value: Any, format: str) -> None:
    """Print anything that msgspec encodes, as JSON or YAML."""
    import msgspec

    text = msgspec.json.encode(value)
    if format == YAML:
        from remuda.cli import yaml_output

        click.echo(yaml_output.dump(msgspec.json.decode(text)), nl=False)
    else:
        click.echo(msgspec.json.format(text, indent=2))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, whole: bool = False, headers: bool = True
) -> None:
    """Print a table. `whole`: do not cut it to the width of the terminal."""
    text = table(columns, rows, None if whole else terminal_width())
    click.echo(text if headers else text.partition("\n")[2])


def print_text(text: str) -> None:
    """Print sentences, wrapped to the width of the terminal."""
    click.echo("\n".join(line.rstrip() for line in wrapped(text, terminal_width())))


def print_records(
    records: Sequence[Mapping[str, Any]], heads: Mapping[str, str], format: str, none: str, *, headers: bool = True
) -> None:
    """Print records that have the same fields, in the requested format.

    `heads`: titles of the columns of the table, by field. `none`: message if there are no records. As names, their
    field `name` is printed.
    """
    if format in (JSON, YAML):
        print_value(records, format)
    elif format == NAME:
        for one in records:
            click.echo(one["name"])
    elif records:
        rows = [[_shown(one.get(field)) for field in heads] for one in records]
        print_table(list(heads.values()), rows, whole=format == WIDE, headers=headers)
    else:
        click.echo(none, err=True)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def wants_no_colour() -> bool:
    """Return whether the user declined colours (no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def terminal_width() -> int | None:
    """Return the width of the terminal; None if standard output is a pipe or a file."""
    size = terminal_size(sys.stdout)
    return None if size is None else size.columns


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    if width is not None:
        before = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
        widths[-1] = min(widths[-1], max(width - before, _LEAST))
    return "\n".join(_GAP.join(map(_cell, row, widths)).rstrip() for row in (columns, *rows))


def table_with_reasons(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Return a text for each row, the heads first. A last column that does not fit is wrapped beneath its row, not
    cut."""
    whole = table(columns, rows).split("\n")
    if width is None or max(map(len, whole)) <= width:
        return whole
    heads = table(columns[:-1], [row[:-1] for row in rows]).split("\n")
    below = ("", *(row[-1] for row in rows))
    return ["\n".join([head, *wrapped(text, width, _BENEATH)]) for head, text in zip(heads, below, strict=True)]


def fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the columns of a table that fit, chosen by importance and in the table's own order.

    A column of empty cells is left out. A last column of sentences counts little: it can be cut.
    """
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    if columns[-1] in _SENTENCES:
        widths[-1] = min(widths[-1], _LEAST)
    known = [at for at in range(len(columns)) if not rows or any(row[at] not in ("", NOTHING) for row in rows)]
    rank = {name: number for number, name in enumerate(_IMPORTANT)}
    chosen: list[int] = []
    used = -len(_GAP)
    for at in sorted(known, key=lambda at: (rank.get(columns[at], len(rank)), at)):
        if used + len(_GAP) + widths[at] <= width or columns[at] == "NAME":
            chosen.append(at)
            used += len(_GAP) + widths[at]
    return sorted(chosen)


def _cell(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"
