"""Wrap messages to the width of the terminal: between words, never within a name or a path that users would copy.

In a pipe or a file, lines are not wrapped.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from difflib import get_close_matches

import click

_LEAST = 24  # however narrow the terminal


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


def errors_width() -> int | None:
    """Return the width of the terminal that shows notes and errors; None if standard error is no terminal."""
    return shutil.get_terminal_size().columns if sys.stderr.isatty() else None


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
        known = command.list_commands(context)
        close = get_close_matches(error.command_name, known)
        if close:
            return _with(error, f"did you mean {' or '.join(f'`{context.command_path} {one}`' for one in close)}?")
        if len(known) == 1:
            return _with(error, f"the only command is `{context.command_path} {known[0]}`")
        if context.parent is not None:
            return _with(error, f"the commands are {', '.join(known)}")
    return error


def _with(error: click.UsageError, advice: str) -> click.UsageError:
    return click.UsageError(f"{error.message.rstrip('.')}: {advice}", error.ctx)
