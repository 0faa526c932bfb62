"""The questions of `remuda create cluster`: each has a default, and each answer is judged at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from remuda.cli import choices
from remuda.cli.text_wrap import say

T = TypeVar("T")

_NAME = "prairie"


def ask(given: Mapping[str, Any], version: str, distribution: str, kubeconfig: Path | None) -> dict[str, Any]:
    """Ask for the remaining settings of a cluster; values given by flags are the defaults."""
    say("A new cluster. Return takes what stands in brackets; Ctrl-C ends this, and nothing is created.\n\n")
    name = _asked("Name", _NAME, _name)
    driver = _asked(f"Driver ({', '.join(_drivers())})", given["driver"], _driver)
    if not version:
        try:
            version = choices.version(distribution, driver, kubeconfig)
        except click.UsageError:
            version = ""
    known = choices.at_hand(kubeconfig)
    at_hand = f" (at hand: {', '.join(known)})" if known else ""
    return {
        "name": name,
        "driver": driver,
        "version": _asked(f"Version{at_hand}", version or None, choices.checked_version),
        "servers": _asked("Servers", str(given["servers"]), lambda text: _count(text, 1)),
        "workers": _asked("Workers", str(given["workers"]), lambda text: _count(text, 0)),
    }


def _asked(question: str, default: str | None, judged: Callable[[str], T]) -> T:
    while True:
        answer = click.prompt(question, default=default, err=True, type=str)
        try:
            return judged(answer.strip())
        except (click.ClickException, ValueError) as error:
            say(f"  {error.message if isinstance(error, click.ClickException) else error}")


def _name(text: str) -> str:
    from remuda.provisioning.declaration import check_name

    return check_name(text)


def _drivers() -> list[str]:
    from remuda.clusterctl.repository import flavours

    return [one.driver for one in flavours()]


def _driver(text: str) -> str:
    known = _drivers()
    if text not in known:
        raise ValueError(f"there is no driver {text} here; there are {', '.join(known)}")
    return text


def _count(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise ValueError(f"a number, {least} or more")
    return int(text)
