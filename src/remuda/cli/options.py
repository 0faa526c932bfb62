"""Options that many commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from remuda.cli import shell_completion

HELP = {"help_option_names": ["-h", "--help"]}


def namespace_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For commands that find something by its name wherever it is."""
    return click.option(
        "-n",
        "--namespace",
        default="",
        shell_complete=shell_completion.namespaces,
        help=f"Where the {what} is; looked for in all by default.",
    )
