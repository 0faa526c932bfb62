"""Prompts of `remuda create cluster`: each has a default, and each answer is checked at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from remuda.cli.connection import connected
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

T = TypeVar("T")

_ANSWER_SECONDS = 10.0  # for a default: not worth a longer wait
_NAMES = ("prairie", "meadow", "canyon", "mesa", "ranch")


def ask(
    given: Mapping[str, Any],
    version: str,
    resolve: Callable[[str, str], str],
    *,
    taken: Collection[str] = (),
    fixed: bool = False,
) -> dict[str, Any]:
    """Ask for the remaining settings of a cluster; values given by flags are the defaults.

    `resolve` returns the version that a version or a channel means for a driver. `taken`: names of clusters that exist.
    `fixed`: the machines are given.
    """
    print_note(
        "Create a cluster. Press Return for the default in brackets, Ctrl-C to stop without creating anything.\n\n"
    )
    name = _prompt("Name", free_name(taken), lambda text: _name(text, taken))
    driver = given["driver"] if fixed else _prompt(f"Driver ({', '.join(_drivers())})", given["driver"], _driver)
    try:
        default = resolve(version, driver)
    except click.UsageError:
        default = version
    found = {
        "name": name,
        "driver": driver,
        "version": _prompt("Version, or a channel such as latest", default or None, lambda text: resolve(text, driver)),
    }
    if fixed:
        return found
    return found | {
        "servers": _prompt("Servers", str(given["servers"]), lambda text: _count(text, 1)),
        "workers": _prompt("Workers", str(given["workers"]), lambda text: _count(text, 0)),
    }


def _prompt(question: str, default: str | None, parse: Callable[[str], T]) -> T:
    while True:
        answer = click.prompt(question, default=default, err=True, type=str)
        try:
            return parse(answer.strip())
        except (click.ClickException, ValueError) as error:
            print_note(f"  {error.message if isinstance(error, click.ClickException) else error}")


def _name(text: str, taken: Collection[str]) -> str:
    from remuda.provisioning.declaration import check_name

    if text in taken:
        raise ValueError(f"cluster {text} exists already: choose another name")
    return check_name(text)


def free_name(taken: Collection[str]) -> str:
    """Return a name for a new cluster that no cluster has."""
    numbered = (f"{_NAMES[0]}-{number}" for number in count(2))
    return next(name for name in chain(_NAMES, numbered) if name not in taken)


def existing_names(kubeconfig: Path | None, namespace: str) -> set[str]:
    """Return the names of the clusters in a namespace; none if the server does not answer: creating says so then."""

    async def names(client: HttpClient) -> set[str]:
        from remuda.cli import cluster_table

        found = await cluster_table.load(client, namespace)
        return {one.name for one in (*found.declared, *found.others)}

    try:
        return connected(kubeconfig, names, timeout_seconds=_ANSWER_SECONDS)
    except click.ClickException:
        return set()


def _drivers() -> list[str]:
    from remuda.clusterctl.repository import flavours

    return [one.driver for one in flavours()]


def _driver(text: str) -> str:
    known = _drivers()
    if text not in known:
        raise ValueError(f"unknown driver {text}; known: {', '.join(known)}")
    return text


def _count(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise ValueError(f"enter a number, {least} or more")
    return int(text)
