"""Arguments that name a cluster or a machine: NAME, `cluster NAME` or `cluster/NAME`, as in kubectl."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import click

from remuda.cli import shell_completion

Type = Literal["cluster", "machine"]

_TYPES: dict[str, Type] = {
    "cluster": "cluster",
    "clusters": "cluster",
    "pcl": "cluster",
    "machine": "machine",
    "machines": "machine",
    "ma": "machine",
}


class CommandSubject(NamedTuple):
    type: Type
    name: str


def subject(words: Sequence[str], *types: Type) -> CommandSubject:
    """Return the object that the words name; the first of the types if they name none. Raises UsageError."""
    first = words[0] if words else ""
    kind, slash, rest = first.partition("/")
    given = [kind, rest, *words[1:]] if slash else list(words)
    if len(given) == 1 and given[0] not in _TYPES:
        return CommandSubject(types[0], given[0])
    if len(given) != 2 or not given[1]:
        raise click.UsageError(f"name one object: {' or '.join(f'{type} NAME' for type in types)}")
    found = _TYPES.get(given[0].lower())
    if found not in types:
        raise click.UsageError(f"{given[0]}: must be {' or '.join(types)}")
    assert found is not None
    return CommandSubject(found, given[1])


def subject_argument(*types: Type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the argument `subject` of a command that works on one object of these types."""

    def read(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> CommandSubject:
        return subject(value, *types)

    return click.argument(
        "subject",
        nargs=-1,
        required=True,
        metavar=f"{'|'.join(types)} NAME",
        callback=read,
        shell_complete=shell_completion.subjects(*types),
    )


def _cluster_name(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> str:
    return subject(value, "cluster").name


cluster_argument = click.argument(
    "name",
    nargs=-1,
    required=True,
    metavar="NAME",
    callback=_cluster_name,
    shell_complete=shell_completion.subjects("cluster"),
)
