"""Command lines that people are shown, read as the program would read them, and never run.

A line is good if its command is there, has these options, and takes as many arguments: files and names in it need not
exist. What leads to it (`KUBECONFIG=…`, `.venv/bin/`, `kubectl remuda`) and what follows it (pipes, redirections,
comments) is not looked at.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from remuda.cli.get import Get
from remuda.cli.main import main

_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_SHELL = {"", "sh", "shell", "bash", "console"}  # blocks of anything else hold no commands: use "text" for output
_INLINE = re.compile(r"`(remuda [^`]+)`")
_CONTINUED = re.compile(r"\\\n\s*")
_ENDS = {"|", ">", ">>", "2>", "&", "&&", "||", ";", "<", "<<"}


class NoSuchCommand(Exception):
    """In words."""


def in_page(text: str) -> Iterator[str]:
    """Every command line of ours in the code blocks of a page of Markdown."""
    for language, block in _BLOCK.findall(text):
        if language in _SHELL:
            yield from in_lines(block)


def in_lines(text: str) -> Iterator[str]:
    for line in _CONTINUED.sub(" ", text).splitlines():
        for part in re.split(r"&&|\|", line):
            if words(part):
                yield part.strip()


def mentioned(text: str) -> Iterator[str]:
    """What the sentences of a page mention: often without all arguments."""
    for said in _INLINE.findall(_BLOCK.sub("", text)):
        yield said.replace("\\|", "|")


def words(line: str) -> list[str]:
    """Of our command, behind its name; none if it is not ours, or not a command."""
    try:
        found = shlex.split(line, comments=True)
    except ValueError:
        return []
    while found and (found[0] == "$" or re.fullmatch(r"\w+=.*", found[0])):
        found = found[1:]
    if found[:2] == ["kubectl", "remuda"]:
        found = found[1:]
    if len(found) < 2 or found[0].rsplit("/", 1)[-1] != "remuda":
        return []
    end = next((place for place, word in enumerate(found) if word in _ENDS or word.endswith(";")), len(found))
    return found[1:end]


def check(line: str, *, whole: bool = True) -> None:
    """Raises NoSuchCommand. `whole`: nothing that is required may be missing."""
    given = words(line)
    if not whole:  # as in "`remuda plan -f` says …"
        given = [word for word in given if word != "…"]
    try:
        _check(main, given, whole)
    except click.BadOptionUsage as error:
        if whole or not given[-1].startswith("-"):
            raise NoSuchCommand(f"{line}: {error.format_message()}") from None
        _check(main, [*given, "…"], whole)
    except click.ClickException as error:
        raise NoSuchCommand(f"{line}: {error.format_message()}") from None


def _check(command: click.Command, given: list[str], whole: bool, parent: click.Context | None = None) -> None:
    if isinstance(command, Get):
        command = command.meant(given)
    context = click.Context(command, parent=parent, info_name=command.name)
    options, rest, _ = command.make_parser(context).parse_args(list(given))
    _check_values(command, context, options)
    if isinstance(command, click.Group):
        if rest:
            inner = command.get_command(context, rest[0])
            if inner is None:
                raise click.UsageError(f"there is no command {rest[0]!r}")
            _check(inner, rest[1:], whole, context)
        return
    if rest and not command.allow_extra_args:
        raise click.UsageError(f"too many arguments: {' '.join(map(str, rest))}")
    missing = [one.human_readable_name for one in command.params if one.required and not _said(one, options)]
    if missing and whole and not {"help", "version"} & set(options):
        raise click.UsageError(f"without {', '.join(missing)}")


def _said(param: click.Parameter, options: dict[str, object]) -> bool:
    value = options.get(param.name or "")
    return bool(value) and isinstance(value, str | int | list | tuple)  # click has a mark of its own for nothing


def _check_values(command: click.Command, context: click.Context, options: dict[str, object]) -> None:
    """Of those that can only be certain words."""
    for param in command.params:
        value = options.get(param.name or "")
        if isinstance(param.type, click.Choice) and isinstance(value, str):
            param.type.convert(value, param, context)
