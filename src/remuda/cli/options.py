"""Options that many commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from remuda.cli import shell_completion

HELP = {"help_option_names": ["-h", "--help"]}


def namespace_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return `-n` for commands that by default search all namespaces."""
    return click.option(
        "-n",
        "--namespace",
        default="",
        shell_complete=shell_completion.namespaces,
        help=f"Namespace of the {what}. Default: search all namespaces.",
    )
