"""Wrap messages to the width of the terminal: between words, never within a name or a path that users would copy.

In a pipe or a file, lines are not wrapped.
"""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TextIO

import click

_LEAST = 24  # however narrow the terminal
WORDS = "remuda.words"  # key of the command line in the context's meta
_USUAL = (80, 24)  # columns and lines of a terminal that does not tell its size


def wrapped(text: str, width: int | None, indent: str = "", *, whole_words: bool = True) -> list[str]:
    """Return the lines of a text, wrapped; continuation lines keep the indentation of their line."""
    found: list[str] = []
    for line in text.splitlines():
        if width is None or len(indent) + len(line) <= width:
            found.append(indent + line)
            continue
        own = indent + line[: len(line) - len(line.lstrip())]
        found += textwrap.wrap(
            line.strip(),
            max(width, len(own) + _LEAST),
            initial_indent=own,
            subsequent_indent=own,
            break_long_words=not whole_words,
            break_on_hyphens=False,
        )
    return found


def terminal_size(stream: TextIO) -> os.terminal_size | None:
    """Return the size of the terminal that a stream writes to; None if it writes to a pipe or a file.

    $COLUMNS and $LINES come first, as in the shell. The size is that of this stream: others may be redirected.
    """
    if not stream.isatty():
        return None
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        found = os.terminal_size((0, 0))
    columns, lines = (_number(os.environ.get(name, "")) for name in ("COLUMNS", "LINES"))
    return os.terminal_size((columns or found.columns or _USUAL[0], lines or found.lines or _USUAL[1]))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def errors_width() -> int | None:
    """Return the width of the terminal that shows notes and errors; None if standard error is no terminal."""
    size = terminal_size(sys.stderr)
    return None if size is None else size.columns


def print_note(text: str) -> None:
    """Print a note to standard error."""
    click.echo("\n".join(wrapped(text, errors_width())), err=True)


def fit(error: click.ClickException) -> click.ClickException:
    """Return the error with its message wrapped to the width of the terminal."""
    width = errors_width()
    if width is not None:
        text = "\n".join(wrapped(f"Error: {error.format_message()}", width)).removeprefix("Error: ")
        error.format_message = lambda: text  # type: ignore[method-assign]
    return error


def with_hint(error: click.ClickException) -> click.ClickException:
    """Return the error with a hint at what the user probably meant."""
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return error
    context, command = error.ctx, error.ctx.command
    if isinstance(error, click.NoSuchOption) and context.parent is None:
        return _with(error, f"put options after the command: {context.command_path} get clusters {error.option_name} …")
    if isinstance(error, click.NoSuchCommand) and isinstance(command, click.Group):
        from remuda.cli.near_matches import commands_meant

        known = command.list_commands(context)
        root = context.find_root().command_path  # several words: kubectl remuda
        words = context.find_root().meta.get(WORDS) or [error.command_name]
        meant = commands_meant(words, context.command_path.removeprefix(root).split(), known)
        if meant:
            return _with(error, f"did you mean {' or '.join(f'`{root} {one}`' for one in meant)}?")
        if len(known) == 1:
            return _with(error, f"the only command is `{context.command_path} {known[0]}`")
        if context.parent is not None:
            return _with(error, f"the commands are {', '.join(known)}")
    return error


def _with(error: click.UsageError, advice: str) -> click.UsageError:
    return click.UsageError(f"{error.message.rstrip('.')}: {advice}", error.ctx)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
